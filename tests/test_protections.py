"""`make protections` takes protections out of the sources; here, that it would find each of them."""

from pathlib import Path

import pytest

from protections import PROTECTIONS, ROOT


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda one: one.promise)
def test_what_a_promise_rests_on_is_at_its_place(protection):
    assert protection.there in (ROOT / "src" / protection.path).read_text()
    assert protection.there != protection.without
    assert Path(ROOT, protection.test.split()[0]).exists()
