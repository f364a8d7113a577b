"""What a run leaves behind: a line of JSON per epoch, and the directory that keeps the lines safe."""

from .curves import add_curves as add_curves
from .curves import read_curves as read_curves
from .curves import write_curves as write_curves
from .record import SCHEMA as SCHEMA
from .record import NewerSchemaError as NewerSchemaError
from .record import Record as Record
from .record import Run as Run
from .record import Status as Status
from .record import check_depth as check_depth
from .record import decode_record as decode_record
from .record import decode_records as decode_records
from .record import encode_record as encode_record
from .record import finite as finite
from .record import last_epoch as last_epoch
from .record import last_sizes as last_sizes
from .record import read_records as read_records
from .record import without_overcome as without_overcome
from .scores import Scores as Scores
from .scores import read_ends as read_ends
from .scores import read_scores as read_scores
