"""The examples of the pages and of the notebook do what they show."""

import re
import subprocess
from pathlib import Path

import nbclient
import nbformat
import pytest

from conftest import CHECKOUT, LONG, PACKAGE, Server

FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", [CHECKOUT / "docs" / "python.md", PACKAGE / "README.md"], ids=lambda p: p.name)
def test_a_page_prints_what_it_shows(page: Path, server: Server, python: Path, tmp_path: Path) -> None:
    script, shown = [], []
    workers = []
    for language, title, text in FENCE.findall(page.read_text()):
        text = text.replace("http://127.0.0.1:7117", server.url)
        if title:
            (tmp_path / title).write_text(text)
            if "worker.run()" in text:
                workers.append(title)
        elif language == "python":
            script.append(text)
        elif language == "text":
            shown.append(text)
    assert script and shown
    (tmp_path / "program.py").write_text("\n".join(script))
    env = {**server.env, "STEADFAST_SERVER": server.url}
    running = [subprocess.Popen([str(python), title], env=env, cwd=tmp_path) for title in workers]
    try:
        ran = subprocess.run(
            [str(python), "program.py"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LONG
        )
    finally:
        for worker in running:
            worker.terminate()
        ends = [worker.wait(LONG) for worker in running]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "".join(shown)
    assert ends == [0] * len(workers)


def test_the_notebook_runs_and_draws_what_it_promises(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(PACKAGE / "examples" / "flaky.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without its outputs"
    monkeypatch.setenv("STEADFAST_SERVER", server.url)
    nbclient.NotebookClient(
        notebook, timeout=LONG, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "Succeeded after 2 attempts" in printed
    shown = [output.data.get("text/html", "") for output in outputs if "data" in output]
    chart = next(html for html in shown if "<svg" in html)
    assert chart.count("<rect") == 2 and "Not yet" in chart
    explained = next(html for html in shown if "<table>" in html)
    assert "retry in 1s" in explained and "RuntimeError: Not yet" in explained
