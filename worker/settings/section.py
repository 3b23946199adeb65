"""What every section of the settings has in common."""

from pydantic import BaseModel, ConfigDict

from worker.errors import FatalError

PREFIX = "ATTRIBUTION_"
PORT_MAX = 65_535


class ConfigurationError(FatalError):
    """The configuration cannot be used; the message names each setting and what is wrong with it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
