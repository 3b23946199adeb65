"""Print the matrix, a line a cell."""

import sys

from tests.guarantees.matrix.cells import table
from tests.guarantees.matrix.test_matrix import MATRIX

sys.stdout.write(table(MATRIX) + "\n")
