"""Executed tutorials, kept by the hash of all that they depend on: a second build runs none."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from website.cells import Tutorial, read

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "docs" / "tutorials"
CACHE = ROOT / ".cache" / "tutorials"


def tutorials() -> list[tuple[Tutorial, Path]]:
    """Return every tutorial with its script, by name."""
    return [(read(path), path) for path in sorted(SCRIPTS.glob("*.py"))]


def executed(script: Path) -> Path:
    """Return the folder with the page and the figures of a tutorial; run it if it has changed."""
    folder = CACHE / f"{script.stem}-{fingerprint(script)}"
    if (folder / "page.md").exists():
        return folder
    for old in CACHE.glob(f"{script.stem}-*"):
        shutil.rmtree(old)
    folder.mkdir(parents=True)
    print(f"Running {script.name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "website.execute", str(script), str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"MPLBACKEND": "Agg"})
    return folder


def fingerprint(script: Path) -> str:
    """Return a hash of the script, the library, what runs it, and the versions of everything else."""
    own = [ROOT / "website" / f"{name}.py" for name in ("cells", "execute", "figures")]
    library = sorted((ROOT / "src" / "steelyard").rglob("*.py"))
    content = hashlib.sha256()
    for path in [script, *own, *library, ROOT / "requirements.lock"]:
        content.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:16]
