# Checks that Python loads nothing at its start that an installed package asked for.
import sys

assert len(sys.modules) > 20
print(*sorted(sys.modules))
