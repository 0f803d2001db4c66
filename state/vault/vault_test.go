package vault

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

func open(t *testing.T, dir string) *Vault {
	t.Helper()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	v, err := Open(filepath.Join(dir, "secret-key"), db)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealedTextsOpenUnderTheirNameAlone(t *testing.T) {
	dir := t.TempDir()
	v := open(t, dir)
	text := []byte("correct horse battery staple")
	sealed, err := v.Seal("container_a", text)
	if err != nil || strings.Contains(sealed, "horse") {
		t.Fatalf("%q %v", sealed, err)
	}
	again := open(t, dir)
	if out, err := again.Unseal("container_a", sealed); err != nil || !bytes.Equal(out, text) {
		t.Errorf("%q %v", out, err)
	}
	if other, _ := v.Seal("container_a", text); other == sealed {
		t.Error("sealing the same twice gives the same")
	}
	if out, err := v.Unseal("container_b", sealed); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("under another name: %q %v", out, err)
	}
	for i := range sealed {
		bad := []byte(sealed)
		bad[i] ^= 1
		if out, err := v.Unseal("container_a", string(bad)); err == nil && !bytes.Equal(out, text) || err == nil &&
			i < len(sealed)-1 {
			t.Fatalf("byte %d can be changed: %q", i, out)
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, "secret-key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
}

func TestKeyFileThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"missing":  os.Remove,
		"garbled":  func(p string) error { return os.WriteFile(p, []byte("berth-vault-1 abc\n"), 0o600) },
		"readable": func(p string) error { return os.Chmod(p, 0o644) },
		"link": func(p string) error {
			if err := os.Rename(p, p+".real"); err != nil {
				return err
			}
			return os.Symlink(p+".real", p)
		},
		"directory": func(p string) error { _ = os.Remove(p); return os.Mkdir(p, 0o700) },
	} {
		dir := t.TempDir()
		sealed, err := open(t, dir).Seal("x", []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(dir, "secret-key")); err != nil {
			t.Fatal(err)
		}
		v := open(t, dir)
		_, serr := v.Seal("x", nil)
		_, uerr := v.Unseal("x", sealed)
		for _, err := range []error{v.Problem(), serr, uerr} {
			if proto.CodeOf(err) != proto.Unavailable || !strings.Contains(err.Error(), "secret-key") ||
				strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Another key opens nothing of the first; both in one file open both, and the first of them seals.
func TestOtherKeys(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret-key")
	first, err := open(t, dir).Seal("x", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadFile(path)
	if err := os.Truncate(path, 0); err != nil { // the operator asks for a new one
		t.Fatal(err)
	}
	v := open(t, dir)
	if _, err := v.Unseal("x", first); proto.CodeOf(err) != proto.Unavailable ||
		!strings.Contains(err.Error(), "another key") {
		t.Errorf("%v", err)
	}
	second, err := v.Seal("x", []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	fresh, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(fresh, old...), 0o600); err != nil {
		t.Fatal(err)
	}
	v = open(t, dir)
	for sealed, want := range map[string]string{first: "one", second: "two"} {
		if out, err := v.Unseal("x", sealed); err != nil || string(out) != want {
			t.Errorf("%q %v", out, err)
		}
	}
	if third, _ := v.Seal("x", nil); strings.Split(third, ".")[1] != strings.Split(second, ".")[1] {
		t.Error("the old key seals")
	}
}

// records are sealed texts by name, as those who keep them have them.
type records map[string]string

func (r records) sweep(reseal func(name, sealed string) (string, error)) (changed, closed int, err error) {
	for name, sealed := range r {
		switch fresh, err := reseal(name, sealed); {
		case err != nil:
			closed++
		case fresh != sealed:
			r[name] = fresh
			changed++
		}
	}
	return changed, closed, nil
}

// inUse is a vault over a ledger that stays open, its key file and that ledger.
func inUse(t *testing.T) (v *Vault, path string, db *ledger.DB) {
	t.Helper()
	dir := t.TempDir()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	path = filepath.Join(dir, "secret-key")
	if v, err = Open(path, db); err != nil {
		t.Fatal(err)
	}
	return v, path, db
}

func TestRotation(t *testing.T) {
	v, path, db := inUse(t)
	all := records{}
	all["a"], _ = v.Seal("a", []byte("first"))
	old := all["a"]
	before, _ := os.ReadFile(path)
	done, err := v.Rotate(all.sweep)
	if err != nil || done.Resealed != 1 || done.Keys != 2 || done.Closed != 0 || all["a"] == old ||
		!strings.Contains(all["a"], done.KeyID) {
		t.Fatalf("%+v %v %v", done, err, all)
	}
	all["b"], _ = v.Seal("b", []byte("second"))
	if done, err := v.Rotate(all.sweep); err != nil || done.Resealed != 2 || done.Keys != 3 {
		t.Errorf("%+v %v", done, err)
	}
	if text, err := v.Unseal("a", old); err != nil || string(text) != "first" {
		t.Errorf("an older copy is closed already: %q %v", text, err)
	}
	all["lost"] = "v1.00000000.AAAA"
	if done, err := v.Forget(all.sweep); err != nil || done.Resealed != 0 || done.Keys != 1 || done.Closed != 1 {
		t.Errorf("%+v %v", done, err)
	}
	again, err := Open(path, db)
	if err != nil || again.Problem() != nil {
		t.Fatal(err, again.Problem())
	}
	for _, v := range []*Vault{v, again} {
		if text, err := v.Unseal("b", all["b"]); err != nil || string(text) != "second" {
			t.Errorf("%q %v", text, err)
		}
		if _, err := v.Unseal("a", old); proto.CodeOf(err) != proto.Unavailable {
			t.Errorf("a forgotten key opens: %v", err)
		}
	}
	after, _ := os.ReadFile(path)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 ||
		bytes.Contains(after, bytes.TrimSpace(before)) {
		t.Errorf("%v %v", fi, err)
	}
}

// A key file that was changed beside the vault is left as it is, and so is all that is sealed: made anew from it, the
// file would be without the key of that.
func TestKeyFileChangedBesideTheVault(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(now, older []byte) []byte
		way    string // out of it
	}{
		"a new key in front": {func(now, _ []byte) []byte { return append(newLine(), now...) }, "restart the daemon"},
		"another behind": {func(now, _ []byte) []byte { return append(bytes.Clone(now), newLine()...) },
			"restart the daemon"},
		"another order": {func(now, older []byte) []byte {
			return append(bytes.Clone(older), now[:len(now)-len(older)]...)
		}, "restart the daemon"},
		"an older copy":   {func(_, older []byte) []byte { return older }, "from a backup"},
		"the newest only": {func(now, older []byte) []byte { return now[:len(now)-len(older)] }, "from a backup"},
		"another file":    {func(_, _ []byte) []byte { return newLine() }, "from a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			v, path, _ := inUse(t)
			older, _ := os.ReadFile(path)
			all := records{}
			all["a"], _ = v.Seal("a", []byte("text")) // under what is the older key next
			if _, err := v.Rotate(); err != nil {
				t.Fatal(err)
			}
			now, _ := os.ReadFile(path)
			changed, was := tt.change(now, older), all["a"]
			refused := func(how string, err error) {
				t.Helper()
				if proto.CodeOf(err) != proto.Conflict || !strings.Contains(err.Error(), tt.way) {
					t.Errorf("%s: %v", how, err)
				}
				if file, _ := os.ReadFile(path); !bytes.Equal(file, changed) {
					t.Errorf("%s made another file", how)
				}
				if text, err := v.Unseal("a", all["a"]); err != nil || string(text) != "text" {
					t.Errorf("after %s: %q %v", how, text, err)
				}
			}
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := v.Rotate(all.sweep)
			refused("Rotate", err)
			_, err = v.Forget(all.sweep)
			refused("Forget", err)
			if all["a"] != was {
				t.Error("it was sealed anew nevertheless")
			}
			if err := os.WriteFile(path, now, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = v.Forget(all.sweep, func(func(name, sealed string) (string, error)) (int, int, error) {
				return 0, 0, os.WriteFile(path, changed, 0o600)
			})
			refused("Forget, while it sweeps,", err)
			if err := os.WriteFile(path, now, 0o600); err != nil { // the way out
				t.Fatal(err)
			}
			if done, err := v.Forget(all.sweep); err != nil || done.Keys != 1 || done.Closed != 0 {
				t.Errorf("as it was: %+v %v", done, err)
			}
		})
	}
}

// What one of them has read or sealed is not what the other has since forgotten or replaced.
func TestOneRotationAtATime(t *testing.T) {
	v, _, _ := inUse(t)
	all := records{}
	all["a"], _ = v.Seal("a", []byte("text"))
	swept, rotating, forgotten := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var rotated Rotation
	var failed error
	var other sync.WaitGroup
	other.Go(func() {
		<-swept
		rotated, failed = v.Rotate(func(reseal func(name, sealed string) (string, error)) (int, int, error) {
			close(rotating)
			<-forgotten
			return all.sweep(reseal)
		})
	})
	_, err := v.Forget(func(reseal func(name, sealed string) (string, error)) (int, int, error) {
		changed, closed, err := all.sweep(reseal)
		close(swept)
		select {
		case <-rotating: // which it must not come to
		case <-time.After(200 * time.Millisecond):
		}
		return changed, closed, err
	})
	close(forgotten)
	other.Wait()
	if err != nil || failed != nil || rotated.Closed != 0 || rotated.Resealed != 1 || rotated.Keys != 2 {
		t.Errorf("%v, %+v %v", err, rotated, failed)
	}
	if text, err := v.Unseal("a", all["a"]); err != nil || string(text) != "text" {
		t.Errorf("%q %v", text, err)
	}
}
