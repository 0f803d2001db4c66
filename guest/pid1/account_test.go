package pid1

import (
	"testing"
	"time"

	"berth/guest/wire"
)

// TestOrphansCount checks that the exit of a command includes the resource use of its killed and abandoned children.
func TestOrphansCount(t *testing.T) {
	w := newWorld(t, false)
	const work = `python3 -c 'x = bytearray(64 << 20); sum(range(8000000))'`
	const gone = `; until [ -s done ]; do sleep 0.01; done; while [ -e /proc/$(cat done) ]; do sleep 0.01; done; rm done`
	for name, text := range map[string]string{
		"ended before its command": `(setsid ` + work + `; echo $BASHPID >done) & disown`,
		"its parent ended first":   `sh -c '(setsid sh -c "$0; echo \$\$ >done") & ' "$W"`,
	} {
		r := w.run(wire.Command{Text: text + gone, Env: []string{"W=" + work}})
		if r.Code != 0 || r.CPU < 50*time.Millisecond || r.PeakBytes < 64<<20 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := w.run(wire.Command{Text: "true"}); r.CPU > 50*time.Millisecond {
		t.Errorf("a command that did nothing is told to have used what came before it: %+v", r)
	}
}
