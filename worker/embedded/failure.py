"""Why a service could not be had; the message says what to do about it."""

from worker.errors import FatalError


class LaunchError(FatalError):
    """A service did not start or stop; the message ends with the last lines of its own output."""


class MissingPrerequisiteError(LaunchError):
    """Something has to be installed first; the message names the command."""
