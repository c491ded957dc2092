from ._features import residual_features as residual_features
from ._monitor import Monitor as Monitor
from ._monitor import Record as Record
from ._verdict import Verdict as Verdict
from ._watch import Watch as Watch
from ._watch import watch as watch
