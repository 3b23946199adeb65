"""What opening a provider takes along."""

import subprocess
import sys

IMPORTS = "import sys, worker.app; print([name for name in ('openai', 'anthropic') if name in sys.modules])"


def test_no_sdk_is_imported_before_its_provider_is_asked() -> None:
    """Each takes a second of every start."""
    ran = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)  # noqa: S603  # our own interpreter
    assert ran.stdout == "[]\n"
