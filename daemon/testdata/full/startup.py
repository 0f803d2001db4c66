# What Python loads before it does anything: nothing that an installed package asked for.
import sys

assert len(sys.modules) > 20
print(*sorted(sys.modules))
