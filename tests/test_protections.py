"""`make protections` takes protections out of the sources; this checks that each of them is found."""

from pathlib import Path

import pytest

from protections import PROTECTIONS, ROOT


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda one: one.promise)
def test_each_protection_is_found_in_the_sources(protection):
    assert protection.there in (ROOT / "src" / protection.path).read_text()
    assert protection.there != protection.without
    assert Path(ROOT, protection.test.split()[0]).exists()
