"""``lowtide.watch`` in Python: context manager, decorator, report, and the pytest fixture."""

import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from test_memory import MIB, limited

import lowtide


def test_a_block_that_grows_is_a_leak_and_its_figures_are_the_kernels():
    # In a process of its own: what other tests left running in this one would be in the figures.
    program = """if True:
        import psutil, time, lowtide
        held, rss = [], 0
        with lowtide.watch(files=()) as w:
            for _ in range(130):
                held.append(bytearray(1 << 20))
                time.sleep(0.02)
                rss = max(rss, psutil.Process().memory_info().rss)
        report = w.report
        assert report.verdict == "leak", report
        assert abs(report.peak_rss_bytes - rss) < 0.02 * rss, (report.peak_rss_bytes, rss)
        assert report.peak_anon_bytes > 130 << 20, report.peak_anon_bytes
        assert report.peak_cache_bytes is None
        assert report.growth_bytes_per_second["anon"] > 10 << 20, report.growth_bytes_per_second
        assert "RssAnon" in str(report) and repr(report).startswith("<lowtide.Report: leak, "), repr(report)
        assert not report.is_flat
    """
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_cache_of_named_files_is_seen(tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(8 << 20))
    with lowtide.watch(files=[path]) as w:
        time.sleep(0.3)
    assert w.report.peak_cache_bytes == 8 << 20
    assert [file["path"] for file in w.report.files] == [str(path.resolve())]
    with lowtide.watch(path) as w:
        time.sleep(0.2)
    assert w.report.peak_cache_bytes == 8 << 20


def test_every_call_of_a_decorated_function_has_its_report():
    @lowtide.watch
    def work(a, *, b):
        """What it does."""
        time.sleep(0.1)
        return a + b

    @lowtide.watch(files=(), interval=0.01)
    def fails():
        raise ZeroDivisionError

    assert work(1, b=2) == 3
    first = work.report
    assert work(3, b=4) == 7
    assert work.report is not first
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    assert json.loads(first.to_json())["command"] == [f"{__name__}.{work.__qualname__}"]
    with pytest.raises(ZeroDivisionError):
        fails()
    assert fails.report.verdict == "unknown"


@pytest.mark.heavy
def test_every_example_in_the_docstrings_runs(tmp_path):
    # In a process of its own: what other tests left running in this one would be in the figures.
    program = """if True:
        import doctest, inspect, lowtide._watch, lowtide.pytest_plugin, sys
        for module in (lowtide._watch, lowtide.pytest_plugin):
            done = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert done.failed == 0 and done.attempted > 5, done
            for name, value in vars(module).items():
                if inspect.isclass(value) and value.__module__ == module.__name__:
                    for part, member in vars(value).items():
                        if callable(member) and not part.startswith("_"):
                            assert ">>>" in (member.__doc__ or ""), f"{name}.{part} has no example"
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.heavy
def test_the_types_of_a_watched_function_are_its_own_and_its_report_is_known(tmp_path):
    (tmp_path / "typed.py").write_text(
        textwrap.dedent("""
        import lowtide

        @lowtide.watch
        def double(number: int) -> int:
            return 2 * number

        class Trainer:
            @lowtide.watch(files=(), tolerance="1MiB")
            def step(self, rows: int) -> str:
                return str(rows)

        reveal_type(double(1))
        reveal_type(double.report)
        reveal_type(double.report.verdict)
        reveal_type(Trainer().step(3))
        reveal_type(Trainer.step.report.peak_cache_bytes)
        double("one")
        """)
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "typed.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed" in line]
    assert found == ["int", "lowtide._watch.Report", "str", "str", "int | None"], done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 1, done.stdout
    assert 'expected "int"' in errors[0]


def test_reports_and_watches_pickle(tmp_path):
    w = lowtide.watch(files=(), tolerance="1MiB")
    with w:
        time.sleep(0.2)
        with pytest.raises(
            TypeError, match="a watch that is running cannot be pickled\nhint: its report can"
        ):
            pickle.dumps(w)
    for again in (
        pickle.loads(pickle.dumps(w.report)),
        copy.deepcopy(w.report),
        pickle.loads(pickle.dumps(w)).report,
    ):
        assert again.to_json() == w.report.to_json()
        assert again.to_html() == w.report.to_html()
        assert repr(again) == repr(w.report)
        assert again._repr_html_() == w.report._repr_html_()
        assert again.samples == w.report.samples
        again.to_html(tmp_path / "again.html")
        again.to_json(tmp_path / "again.json")
        assert (tmp_path / "again.html").read_text() == w.report.to_html()
        assert json.loads((tmp_path / "again.json").read_text()) == json.loads(w.report.to_json())
    other = pickle.loads(pickle.dumps(w))
    assert repr(other) == repr(w)
    with other:
        pass
    assert other.report.seconds < w.report.seconds, "it can be used again"


def test_a_method_can_be_watched():
    class Trainer:
        rows = 7

        @lowtide.watch(files=())
        def step(self, more: int) -> int:
            return self.rows + more

    assert Trainer().step(3) == 10
    assert Trainer.step.report.verdict == "unknown"


def test_a_block_that_raises_still_has_a_report():
    watch = lowtide.watch(files=())
    with pytest.raises(KeyError), watch:
        raise KeyError
    assert watch.report.verdict == "unknown"


def test_misuse_is_said():
    w = lowtide.watch()
    with pytest.raises(RuntimeError, match="before the watched block has ended"):
        _ = w.report
    with w, pytest.raises(RuntimeError, match="running already"):
        w.__enter__()
    for interval in (-1, 0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^interval=\S+ makes no sense"):
            lowtide.watch(interval=interval)
    with pytest.raises(ValueError, match="size"):
        lowtide.watch(tolerance="a lot")
    for nothing in (0, "0"):
        assert lowtide.watch(files=(), tolerance=nothing)(len)("abc") == 3


def test_watches_may_be_nested_and_run_in_threads():
    def work():
        with lowtide.watch(files=()) as outer:
            with lowtide.watch(files=()) as inner:
                time.sleep(0.15)
            time.sleep(0.15)
        assert outer.report.seconds > inner.report.seconds

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_fork_inside_a_watch_is_counted_and_does_not_hang():
    with lowtide.watch(files=()) as w:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                w.__exit__(None, None, None)
            except ValueError as error:
                code = 0 if "was started by process" in str(error) else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sleeper = subprocess.Popen(["sleep", "0.4"])
        sleeper.wait()
    assert any("sleep" in process["command"] for process in w.report.processes)


def test_the_report_is_a_file_a_text_and_a_notebook_cell(tmp_path):
    with lowtide.watch(files=()) as w:
        time.sleep(0.2)
    w.report.to_html(tmp_path / "mem.html")
    page = (tmp_path / "mem.html").read_text()
    assert page == w.report.to_html()
    assert page.startswith("<!doctype html>")
    w.report.to_json(tmp_path / "mem.json")
    data = json.loads((tmp_path / "mem.json").read_text())
    assert data == json.loads(w.report.to_json())
    for key in ("verdict", "peak_anon_bytes", "peak_file_bytes", "peak_cache_bytes"):
        assert data[key] == getattr(w.report, key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mem.html", "mem.json"]
    cell = w.report._repr_html_()
    assert cell.startswith("<iframe srcdoc=")
    assert "<script" not in cell, "the page inside is quoted"
    with pytest.raises(FileNotFoundError):
        w.report.to_html(tmp_path / "nowhere" / "mem.html")


def run_pytest(folder, text, before=None):
    (folder / "test_it.py").write_text(textwrap.dedent(text))
    # zarr has a plugin of its own, which imports NumPy: docs/migrate.md brings it here.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:zarr", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, preexec_fn=before)


@pytest.mark.heavy
def test_the_fixture_fails_what_grows_and_passes_what_does_not(tmp_path):
    done = run_pytest(
        tmp_path,
        """
        import time
        held = []

        def test_grows(lowtide_flat):
            for _ in range(140):
                held.append(bytearray(1 << 20)); time.sleep(0.02)

        def test_repeated_grows(lowtide_flat):
            lowtide_flat(lambda: (held.append(bytearray(1 << 20)), time.sleep(0.02)))

        def test_grows_within_reason(lowtide_flat):
            lowtide_flat.tolerance = "4GiB"
            lowtide_flat(lambda: (held.append(bytearray(1 << 20)), time.sleep(0.02)))

        def test_grows_within_reason_as_a_whole(lowtide_flat):
            lowtide_flat.tolerance = "4GiB"
            for _ in range(140):
                held.append(bytearray(1 << 20)); time.sleep(0.02)

        def test_stays(lowtide_flat):
            report = lowtide_flat(lambda: time.sleep(0.01))
            assert report.verdict == "flat"

        def test_short(lowtide_flat):
            pass

        def test_fails_anyway(lowtide_flat):
            assert 1 == 2

        def test_without():
            pass
        """,
    )
    out = done.stdout
    assert "3 failed, 5 passed, 1 warning" in out, out
    assert "FAILED test_it.py::test_grows - " in out
    assert "FAILED test_it.py::test_repeated_grows - " in out
    assert "memory is not flat: leak" in out
    assert "assert 1 == 2" in out
    assert "too short to tell" in out


EATS = """
import subprocess, sys, time

def eat():
    # All at once: no sample of it can be counted on.
    done = subprocess.run([sys.executable, "-c", "held = b'1' * (1 << 30)"])
    assert done.returncode == -9, done
    end = time.monotonic() + 3
    while time.monotonic() < end:
        time.sleep(0.01)
"""


def test_a_child_that_was_killed_for_want_of_memory_is_never_flat(tmp_path, python):
    with limited(256 * MIB) as group:

        def join():
            (group / "cgroup.procs").write_text(str(os.getpid()))

        code = f"""if True:
            import lowtide
            {textwrap.indent(EATS, " " * 12)}
            with lowtide.watch(files=(), tolerance="1GiB") as w:
                eat()
            print(w.report.to_json())
            print(w.report.is_flat)
        """
        report, is_flat = python(code, before=join).splitlines()
    report = json.loads(report)
    assert (report["verdict"], is_flat) == ("unknown", "False")
    assert report["killed"]["out_of_memory"]
    assert report["killed"]["by"] == "cgroup limit"
    assert report["sentence"].startswith("The kernel killed a process with SIGKILL for want of memory")
    assert report["advice"].startswith("Raise the limit")


def test_the_fixture_fails_where_a_child_was_killed_for_want_of_memory(tmp_path):
    with limited(256 * MIB) as group:
        done = run_pytest(
            tmp_path,
            f"""{textwrap.indent(EATS, " " * 8)}
        def test_killed(lowtide_flat):
            lowtide_flat.tolerance = "1GiB"
            eat()

        def test_killed_whatever_is_allowed(lowtide_flat):
            lowtide_flat.allow = {{"cache", "mapped", "shared", "leak"}}
            eat()

        def test_killed_beside_the_step_that_is_judged(lowtide_flat):
            lowtide_flat.tolerance = "1GiB"
            lowtide_flat(lambda: time.sleep(0.01))
            eat()

        def test_nobody_was_killed(lowtide_flat):
            lowtide_flat.tolerance = "1GiB"
            time.sleep(3)
        """,
            before=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    # Under CI=true pytest's summary has whole messages, too.
    failures = done.stdout.partition("short test summary info")[0]
    assert failures.count("a process was killed for want of memory: ") == 3, done.stdout
    assert failures.count("hint: Raise the limit") == 3, done.stdout


def test_the_plugin_does_not_import_numpy_for_others(tmp_path):
    done = run_pytest(tmp_path, "import sys\ndef test_it():\n    assert 'numpy' not in sys.modules\n")
    assert done.returncode == 0, done.stdout
