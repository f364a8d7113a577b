"""The networks of the problems: functions and small modules that make an initialised model."""
