package picture

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi/sixel"
)

// figure returns a PNG with a red left half and a blue right half.
func figure(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 12, 12))
	for x := range 12 {
		for y := range 12 {
			img.Set(x, y, color.RGBA{R: 255, A: 255})
			if x >= 6 {
				img.Set(x, y, color.RGBA{B: 255, A: 255})
			}
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// halves checks that a picture is red on the left and blue on the right.
func halves(t *testing.T, img image.Image) {
	t.Helper()
	left, _, _, _ := img.At(2, 3).RGBA()
	_, _, right, _ := img.At(9, 3).RGBA()
	if img.Bounds().Dx() != 12 || left < 0xf000 || right < 0xf000 {
		t.Errorf("a picture of %v with %x and %x", img.Bounds(), left, right)
	}
}

// TestDraw reads back what each protocol sends.
func TestDraw(t *testing.T) {
	drawn := map[Protocol]string{}
	for _, p := range []Protocol{Kitty, ITerm, Sixel} {
		var b bytes.Buffer
		if err := p.Draw(&b, figure(t)); err != nil {
			t.Fatal(err)
		}
		drawn[p] = b.String()
	}
	payload := func(p Protocol, before, after string) string {
		t.Helper()
		_, rest, ok := strings.Cut(drawn[p], before)
		in, end, ok2 := strings.Cut(rest, after)
		if !ok || !ok2 || end != "\n" {
			t.Fatalf("%s: %q", p, drawn[p])
		}
		return in
	}
	opts, kittyData, _ := strings.Cut(payload(Kitty, "\x1b_G", "\x1b\\"), ";")
	for _, want := range []string{"a=T", "f=100", "q=2"} {
		if !strings.Contains(opts, want) {
			t.Errorf("kitty's options are %s, without %s", opts, want)
		}
	}
	_, itermData, _ := strings.Cut(payload(ITerm, "\x1b]1337;File=", "\a"), ":")
	for p, text := range map[Protocol]string{Kitty: kittyData, ITerm: itermData} {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(p, err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(p, err)
		}
		halves(t, img)
	}
	img, err := new(sixel.Decoder).Decode(strings.NewReader(payload(Sixel, "q", "\x1b\\")))
	if err != nil {
		t.Fatal(err)
	}
	halves(t, img)
}

// TestDrawDamaged checks that nothing is sent of what is no picture, or of one that claims to be too large.
func TestDrawDamaged(t *testing.T) {
	huge := figure(t)
	copy(huge[16:24], []byte{0, 1, 0, 0, 0, 1, 0, 0}) // 65,536 by 65,536, with a wrong sum; the size comes first
	for name, data := range map[string][]byte{"text": []byte("\x1b[31mred"), "cut": figure(t)[:50], "huge": huge} {
		var b bytes.Buffer
		if err := Kitty.Draw(&b, data); err == nil || b.Len() > 0 {
			t.Errorf("%s: %d bytes and %v", name, b.Len(), err)
		}
	}
}

// TestNamed checks which terminals are known by their variables.
func TestNamed(t *testing.T) {
	for vars, want := range map[string]Protocol{
		"TERM=xterm-kitty":                       Kitty,
		"TERM=xterm-ghostty":                     Kitty,
		"TERM=xterm KONSOLE_VERSION=240802":      Kitty,
		"TERM=xterm TERM_PROGRAM=iTerm.app":      ITerm,
		"TERM=xterm LC_TERMINAL=iTerm2":          ITerm,
		"TERM=dumb TERM_PROGRAM=iTerm.app":       None,
		"TERM=screen-256color KITTY_WINDOW_ID=1": "",
		"TERM=tmux TMUX=x TERM_PROGRAM=WezTerm":  "",
		"TERM=xterm-256color":                    "",
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(vars) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		if got := named(func(name string) string { return env[name] }); got != want {
			t.Errorf("%s: %q, want %q", vars, got, want)
		}
	}
	if bySixel("62;22;4") != Sixel || bySixel("64;22;44") != None {
		t.Error("the attributes of a terminal are misread")
	}
}
