package cell

import (
	"testing"

	"berth/guest/output"
	"berth/proto"
)

// TestDisplaysAreComplete checks that a display is shown with its data, although the end of the other stream comes
// before them.
func TestDisplaysAreComplete(t *testing.T) {
	c := New(0, output.NewBudget(1<<20))
	defer c.Close()
	c.KeepDisplays()
	stdout, stderr := listenerOf{c, proto.Stdout}, listenerOf{c, proto.Stderr}
	stdout.reported(kindResult, []byte(resultValue))
	stderr.reported(kindEnd, nil)
	if d, ok := c.Display(0); ok {
		t.Errorf("a display without its data is shown: %+v", d)
	}
	stdout.reported(kindName, []byte("text/plain"))
	stdout.reported(kindData, []byte("2"))
	stdout.reported(kindEnd, nil)
	if d, ok := c.Display(0); !ok || d.Text != "2" || !d.Main {
		t.Errorf("the display is %+v, %t", d, ok)
	}
}
