package journal

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestFramesKeepTheirFormat reads a journal that an earlier build wrote: a put of one key and a
// removal of another, in one frame.
func TestFramesKeepTheirFormat(t *testing.T) {
	const epoch = 0x0123456789abcdef
	const golden = "efcdab896745230110000000c2f988c9" + // epoch, size, check
		"010462006b3103223122000462006b32"
	path := filepath.Join(t.TempDir(), "ledger.db.log")
	j, err := Open(path, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	j.Restart(epoch)
	frame := AppendChange(AppendChange(make([]byte, HeaderSize), "b\x00k1", []byte(`"1"`)), "b\x00k2", nil)
	frame = j.Seal(frame)
	if err := j.Add(frame); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(frame); got != golden {
		t.Errorf("a frame is written as %s, not %s", got, golden)
	}
	data, err := hex.DecodeString(golden)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = Replay(path, Start{Epoch: epoch}, func(key string, value []byte) { got[key] = string(value) })
	if want := map[string]string{"b\x00k1": `"1"`, "b\x00k2": ""}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("replay gives %q, not %q; %v", got, want, err)
	}
}
