"""From records to tables and figures. Imports no torch and no training code."""
