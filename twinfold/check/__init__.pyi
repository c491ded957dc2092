from ._examination import Examination as Examination
from ._examination import examine as examine
from ._finding import Finding as Finding
