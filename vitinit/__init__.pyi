from vitinit.initializers.check import Check as Check
from vitinit.initializers.check import Finding as Finding
from vitinit.initializers.check import check as check
from vitinit.initializers.errors import VitinitError as VitinitError
from vitinit.initializers.initialize import Change as Change
from vitinit.initializers.initialize import Report as Report
from vitinit.initializers.initialize import initialize as initialize
from vitinit.initializers.registry import Known as Known
from vitinit.initializers.registry import catalogue as catalogue
from vitinit.studies import Run as Run
from vitinit.studies import RunOptions as RunOptions
from vitinit.studies import StudyResults as StudyResults
from vitinit.studies import epochs as epochs
from vitinit.studies import load as load
from vitinit.studies import records as records
from vitinit.studies import run as run
from vitinit.studies import study as study

__version__: str
__all__: list[str]
