package proc

import "testing"

func TestParseStat(t *testing.T) {
	line := "12 (a) R 1 (b) S 7 8 9 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 99 0\n"
	p, ok := parseStat(12, []byte(line))
	if want := (process{12, 7, 8, 9, 'S', 12345, 100}); !ok || p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "1 (x", "1 (x)", "1 (x) S 1 2"} {
		if _, ok := parseStat(1, []byte(bad)); ok {
			t.Errorf("took %q", bad)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(1, b) })
}
