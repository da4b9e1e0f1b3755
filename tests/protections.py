"""``make protections``: each protection is taken out of a copy of the sources, and its test must fail.

    .venv/bin/python tests/protections.py            # all
    .venv/bin/python tests/protections.py torn       # those whose promise holds this text

The copy is in build/protections; its core is compiled again if a protection is part of it. Exit code 1 if a
test passes without its protection or does not end, or if a protection is not found in the sources.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "protections"
PACKAGE = COPY / "package"


class Protection(NamedTuple):
    """A protection: its place in the sources, the code without it, and the test that must fail then."""

    promise: str
    path: str  # below src
    there: str
    without: str
    test: str  # arguments of pytest, or a script


PROTECTIONS = [
    Protection(
        "a file is never torn: written under a temporary name",
        "bonsai_xmc/_base/files.py",
        "    handle, temporary = _create(target)\n",
        "    handle, temporary = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), target\n",
        "tests/test_faults.py -k whole_files",
    ),
    Protection(
        "a file is never torn: on the disk before it is renamed",
        "bonsai_xmc/_base/files.py",
        "            os.fsync(handle)\n            if check",
        "            if check",
        "tests/test_faults.py -k whole_files",
    ),
    Protection(
        "damage is noticed: checksums of tensors",
        "bonsai_xmc/_modelfile/container.py",
        "    if _crc32(file.arrays[name]) != file.checksums[name]:\n",
        "    if False:\n",
        "tests/test_contract.py -k damaged_file",
    ),
    Protection(
        "damage is noticed: checksum of the header",
        "bonsai_xmc/_modelfile/container.py",
        '    if found[1] != b"%08x" % crc:\n',
        "    if False:\n",
        "tests/test_modelfile.py tests/test_errors.py",
    ),
    Protection(
        "no input ends the process: sparse matrices are proven",
        "bonsai_xmc/_data/sparse.py",
        "    if flaw is not None:\n        raise ValueError",
        "    if False:\n        raise ValueError",
        "tests/test_fuzz.py -k rows",
    ),
    Protection(
        "no input ends the process: tensors are as described",
        "bonsai_xmc/_modelfile/format.py",
        '    schema.check_tensors(file.arrays, {"D": n_features, "L": n_labels})\n',
        "",
        "tests/test_fuzz.py -k model",
    ),
    Protection(
        "no input ends the process: Parquet files with damaged pages",
        "bonsai_xmc/datasets/_documents/formats.py",
        "    except (ValueError, OSError) as error:  # pyarrow's own errors are subclasses of these\n",
        "    except KeyError as error:\n",
        "tests/test_documents.py -k parquet",
    ),
    Protection(
        "no input ends the process: nodes of trees are read within their records",
        "core/model/forest.cpp",
        '        require(a_.shift[b] <= kMaxShift, "shift");\n',
        "",
        "tests/test_errors.py -k checksums_hold",
    ),
    Protection(
        "no input ends the process: labels of trees over rows exist",
        "core/predict/row_trees.cpp",
        '    check_csr(a.leaf_ptr, a.leaf_labels, n_leaves, n_labels_, "leaf_labels");\n',
        "",
        "tests/test_fastxml.py -k do_not_fit",
    ),
    Protection(
        "no input ends the process: label vectors are of unit length",
        "core/data/label_vectors.cpp",
        "        check_values(part.value);\n",
        "",
        "tests/test_work.py -k unit_length",
    ),
    Protection(
        "nor a lack of threads: fewer do the same work",
        "core/base/parallel.cpp",
        "    } catch (const std::exception&) {\n        // If no thread",
        "    } catch (const std::logic_error&) {\n        // If no thread",
        "tests/test_faults.py -k thread",
    ),
    Protection(
        "nor a lack of memory: errors of workers are passed on",
        "core/base/parallel.cpp",
        "        if (!loop.error) loop.error = std::current_exception();\n",
        "",
        "tests/test_faults.py -k allocation",
    ),
    Protection(
        "memory is bounded by the input: claims of archives",
        "bonsai_xmc/datasets/_npz.py",
        "    if dtype.itemsize == 0 or not 0 <= announced <= size:\n",
        "    if False:\n",
        "tests/test_reading.py",
    ),
    Protection(
        "memory is bounded by the input: lines without end",
        "bonsai_xmc/datasets/_documents/formats.py",
        "        if len(line) > most:\n",
        "        if False:\n",
        "tests/test_documents.py -k very_long",
    ),
    Protection(
        "memory is bounded by the input: features that occur are numbered",
        "core/data/dataset.cpp",
        ">= x_.n_features) return;",
        ">= 0) return;",
        "tests/test_limits.py -k features_that_occur",
    ),
    Protection(
        "memory is bounded by the input: fewer threads where there is little",
        "bonsai_xmc/_training/memory/limit.py",
        "            n -= 1\n",
        "            break\n",
        "tests/test_memory.py -k within_a_limit",
    ),
    Protection(
        "an interrupt is answered soon: signals are checked",
        "python/watched.hpp",
        "                if (PyErr_CheckSignals() != 0) throw nanobind::python_error();\n",
        "",
        "tests/test_properties.py -k interrupt",
    ),
    Protection(
        "an interrupt is answered soon: the command line ends in words",
        "bonsai_xmc/_cli/__init__.py",
        "    except (KeyboardInterrupt, Exception) as error:\n",
        "    except Exception as error:\n",
        "tests/test_cli_process.py -k interrupt_stops",
    ),
    Protection(
        "training continues to the same bytes: checksums of results",
        "bonsai_xmc/_training/checkpoint.py",
        "                if zlib.crc32(result) == check_of_result:\n",
        "                if True:\n",
        "tests/test_work.py -k torn_and_damaged",
    ),
    Protection(
        "training continues to the same bytes: what is torn is cut off",
        "bonsai_xmc/_training/checkpoint.py",
        "            os.ftruncate(self._handle, self._end)\n",
        "            self._end = os.fstat(self._handle).st_size\n",
        "tests/test_work.py -k torn_and_damaged",
    ),
    Protection(
        "training continues to the same bytes: units of workers that end are solved again",
        "bonsai_xmc/_training/sending.py",
        "        except self.ray.exceptions.RayError as error:\n",
        "        except ImportError as error:\n",
        "tests/test_ray.py -k workers_are_killed",
    ),
    Protection(
        "any number of threads gives the same bytes: random numbers do not depend on them",
        "bonsai_xmc/_training/train.py",
        "labels.n_labels, n_trees, params, seed)",
        "labels.n_labels, n_trees, params, seed + work.threads)",
        "tests/test_properties.py -k same_file_for_any_number",
    ),
    Protection(
        "nothing grows: files are closed",
        "bonsai_xmc/_modelfile/container.py",
        "        size = os.fstat(file.fileno()).st_size\n",
        "        size = os.fstat(os.dup(file.fileno())).st_size\n",
        "tests/soak.py --seconds 30",
    ),
    Protection(
        "edits are those of a naive model: labels that are dropped leave their leaves",
        "bonsai_xmc/_model/edit.py",
        "    kept = in_leaf & (plan.slot_of_old[entry_slot] >= 0)\n",
        "    kept = in_leaf.copy()\n",
        "tests/test_edit_sequences.py -k leaf",
    ),
    Protection(
        "texts are weighted as by scikit-learn: smoothed document frequencies",
        "core/text/tfidf.cpp",
        "smooth ? 1 : 0;",
        "smooth ? 2 : 0;",
        "tests/test_text_vectorizer.py -k scikit_learn",
    ),
    Protection(
        "systems are those of plain NumPy: labels without training rows are not found",
        "bonsai_xmc/systems/low_rank.py",
        "            estimates[:, barred] = -np.inf\n",
        "",
        "tests/test_systems.py -k leml",
    ),
    Protection(
        "the server never fails: deep JSON",
        "bonsai_xmc/_server/http.py",
        "    except (ValueError, RecursionError) as error:\n",
        "    except ValueError as error:\n",
        "tests/test_fuzz.py -k requests",
    ),
    Protection(
        "the server is never stale: connections are handed over",
        "bonsai_xmc/_server/worker.py",
        "            connection.leave(self._handover.give if self._succeeded else None, wait)\n",
        "            connection.leave(None, True)\n",
        "tests/test_server_reload.py -k connection_that_waits",
    ),
]


def prepare() -> dict[str, str]:
    """Copy the sources, and return the environment in which the copy is imported."""
    shutil.rmtree(PACKAGE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "bonsai_xmc", PACKAGE / "bonsai_xmc")
    for module in (ROOT / ".venv").glob("lib/python*/site-packages/bonsai_xmc/*.so"):
        shutil.copy(module, PACKAGE / "bonsai_xmc")
    # Python reads this after the editable installation, which redirects imports to the sources.
    (PACKAGE / "sitecustomize.py").write_text(
        "import sys\n"
        'sys.meta_path[:] = [one for one in sys.meta_path if "ScikitBuild" not in type(one).__name__]\n'
    )
    return os.environ | {"PYTHONPATH": str(PACKAGE)}


def compiled(protection: Protection) -> None:
    """Build the core without a protection, and put it into the copy of the package."""
    source, tools = COPY / "source", ROOT / ".venv" / "bin"
    build = source / "build" / "core"  # as deep below the sources as that of `make`: ccache knows the objects
    parts = [ROOT / name for name in ("src", "CMakeLists.txt", "pyproject.toml")]
    subprocess.run(["cp", "-ru", "--preserve=timestamps", *parts, source], check=True)
    take_out(source / "src" / protection.path, protection)
    options = [f"-DCMAKE_MAKE_PROGRAM={tools}/ninja", f"-DPython_EXECUTABLE={tools}/python"]
    options += ["-DBONSAI_TESTING=ON"]
    for command in (["-S", source, "-B", build, "-G", "Ninja", *options], ["--build", build]):
        subprocess.run([tools / "cmake", *command], check=True, stdout=subprocess.DEVNULL)
    for module in build.glob("*.so"):
        shutil.copy(module, PACKAGE / "bonsai_xmc")
    shutil.copy2(ROOT / "src" / protection.path, source / "src" / protection.path)
    os.utime(source / "src" / protection.path)  # it is compiled again for the next one


def take_out(path: Path, protection: Protection) -> None:
    """Write the source file without the protection."""
    text = (ROOT / "src" / protection.path).read_text()
    if protection.there not in text:
        sys.exit(f"{protection.path} lacks the protection ({protection.promise}):\n{protection.there}")
    path.write_text(text.replace(protection.there, protection.without))


def outcome(protection: Protection) -> str:
    """Return how the test ends without a protection: "noticed" if it fails or the process ends."""
    environment = prepare()
    if protection.path.startswith("bonsai_xmc"):
        take_out(PACKAGE / protection.path, protection)
    else:
        (COPY / "source").mkdir(parents=True, exist_ok=True)
        compiled(protection)
    arguments = protection.test.split()
    if "soak" not in arguments[0]:
        arguments = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    command = ["timeout", "--kill-after=10", "3600", sys.executable, *arguments]  # ends its children, too
    code = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode
    # 2 to 5 of pytest: the copy cannot be imported, or there is no such test
    return {0: "MISSED", 124: "TIMEOUT"}.get(code, "noticed" if code not in (2, 3, 4, 5) else "BROKEN")


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    outcomes = []
    for protection in [one for one in PROTECTIONS if wanted in one.promise]:
        outcomes.append(outcome(protection))
        print(f"{outcomes[-1]:8} {protection.promise} ({protection.test})", flush=True)
    sys.exit(0 if set(outcomes) == {"noticed"} else 1)


if __name__ == "__main__":
    main()
