"""How the documentation site is built: `make docs`. Nothing here is installed with the package."""
