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
	if _, ok := c.DisplayAt(0); ok {
		t.Errorf("a display without its data is shown: %+v", c.Display(0))
	}
	stdout.reported(kindName, []byte("text/plain"))
	stdout.reported(kindData, []byte("2"))
	stdout.reported(kindEnd, nil)
	if _, ok := c.DisplayAt(0); !ok {
		t.Fatal("a display with its data is not shown")
	}
	if d := c.Display(0); d.Text != "2" || !d.Main {
		t.Errorf("the display is %+v", d)
	}
}
