"""What weighted particles tell: expectations, filters, smoothing, how sure log Z is, and forms for other libraries."""
