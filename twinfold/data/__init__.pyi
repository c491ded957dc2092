from ._batch import Batch as Batch
from ._dataset import Dataset as Dataset
from ._load import load_dataset as load_dataset
from ._run import Run as Run
from ._switches import with_switches as with_switches
from ._switches import without_tail as without_tail
