"""The report in a real browser; collected only where there is one."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.experiments.conftest import Made

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

# Runs in a copy of the page, and leaves in its title how many pictures were drawn and how wide they are.
PROBE = """<script>addEventListener("load", () => {
  const widths = [...document.images].map(image => image.complete ? image.naturalWidth : 0);
  const wide = document.getElementById("diagram").getBoundingClientRect().width;
  const loaded = performance.getEntriesByType("resource").filter(x => !x.name.startsWith("data:")).length;
  const cells = document.querySelectorAll("#table1 td").length;
  document.title = `probe ${JSON.stringify({widths, wide, loaded, cells})}`;
});</script>"""


OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--virtual-time-budget=5000",
    "--enable-logging=stderr",
]


def browse(folder: Path, page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(CHROMIUM), *OPTIONS, profile, *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


if CHROMIUM is not None:

    def test_the_table_and_every_picture_are_drawn(made: Made, tmp_path: Path) -> None:
        page = tmp_path / "report.html"
        page.write_text((made.out / "report.html").read_text().replace("</body>", f"{PROBE}</body>"))
        run = browse(tmp_path, page, "--dump-dom")
        probe = re.search(r"<title>probe (.*?)</title>", run.stdout)
        assert probe is not None, run.stdout[:2000]
        found = json.loads(probe[1])
        assert len(found["widths"]) == 3
        assert min(found["widths"]) > 100
        assert found["wide"] > 100
        assert found["loaded"] == 0
        assert found["cells"] == 22
        # Chromium says there what failed to load.
        assert "CONSOLE" not in run.stderr

    def test_a_screenshot_is_kept(made: Made, tmp_path: Path) -> None:
        picture = tmp_path / "report.png"
        browse(tmp_path, made.out / "report.html", f"--screenshot={picture}", "--window-size=1400,2400")
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 50_000
