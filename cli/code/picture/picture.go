// Package picture draws figures in a terminal, by the protocol that it knows: kitty's, iTerm2's or sixel. Package
// cli/code calls it for the results of code.
//
// Pictures come from containers. They are decoded here and encoded anew, so that no byte of theirs reaches the
// terminal as it came.
package picture

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/jpeg" // figures are PNG or JPEG
	"image/png"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/iterm2"
	"github.com/charmbracelet/x/ansi/kitty"
	"github.com/charmbracelet/x/ansi/sixel"

	"berth/cli/term"
)

// A Protocol is a way to draw pictures in a terminal.
type Protocol string

// Protocols. Auto asks the environment and the terminal.
const (
	Auto  Protocol = "auto"
	None  Protocol = "none"
	Kitty Protocol = "kitty"
	ITerm Protocol = "iterm"
	Sixel Protocol = "sixel"
)

// Protocols are the values of a flag.
var Protocols = []Protocol{Auto, None, Kitty, ITerm, Sixel}

// maxPixels bounds what is decoded: a file of a few bytes can claim to be a picture of gigabytes.
const maxPixels = 32 << 20

// Draw draws a PNG or JPEG on its own lines.
func (p Protocol) Draw(w io.Writer, data []byte) error {
	cfg, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("the figure is damaged: %w", err)
	}
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > maxPixels/cfg.Height {
		return fmt.Errorf("the figure of %d by %d pixels is too large to draw; write it to a file with --figures",
			cfg.Width, cfg.Height)
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("the figure is damaged: %w", err)
	}
	var b bytes.Buffer
	switch p {
	case Kitty:
		err = kitty.EncodeGraphics(&b, img, &kitty.Options{Action: kitty.TransmitAndPut, Transmission: kitty.Direct,
			Format: kitty.PNG, Chunk: true, Quiet: 2}) // 2: the terminal answers nothing, not even errors
	case ITerm:
		var plain bytes.Buffer
		if err = png.Encode(&plain, img); err == nil {
			text := base64.StdEncoding.EncodeToString(plain.Bytes())
			b.WriteString(ansi.ITerm2(iterm2.File{Inline: true, Size: int64(plain.Len()), Content: []byte(text)}))
		}
	case Sixel:
		var payload bytes.Buffer
		if err = new(sixel.Encoder).Encode(&payload, img); err == nil {
			b.WriteString(ansi.SixelGraphics(0, 1, 0, payload.Bytes()))
		}
	default:
		return fmt.Errorf("no terminal draws figures by %q", p)
	}
	if err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// Of returns the protocol for standard output: None if that is no terminal, or one that draws no pictures.
func Of(out io.Writer) Protocol {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(f) {
		return None
	}
	if p := named(os.Getenv); p != "" {
		return p
	}
	return asked()
}

// named returns the protocol of a terminal that says in variables who it is, or "".
func named(env func(string) string) Protocol {
	kind, program := env("TERM"), env("TERM_PROGRAM")
	switch {
	case kind == "dumb":
		return None
	case env("TMUX") != "" || strings.HasPrefix(kind, "screen"):
		return "" // the variables are those of the terminal around it; it may draw sixels, and then says so
	case env("KITTY_WINDOW_ID") != "" || kind == "xterm-kitty" || kind == "xterm-ghostty" || program == "ghostty" ||
		env("KONSOLE_VERSION") != "":
		return Kitty
	case program == "iTerm.app" || program == "WezTerm" || env("LC_TERMINAL") == "iTerm2":
		return ITerm
	}
	return ""
}

// patience is how long a terminal may take to say what it can. Over a slow connection it may take longer; its answer
// then goes to the shell, as that of a slow terminal to any program.
const patience = 300 * time.Millisecond

// attributes is a terminal's answer to DA1. A 4 among the numbers means sixels.
var attributes = regexp.MustCompile(`\x1b\[\?([0-9;]*)c`)

// asked asks the terminal whether it draws sixels.
func asked() Protocol {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return None
	}
	defer tty.Close()
	restore, err := term.RawMode(tty)
	if err != nil {
		return None
	}
	defer restore()
	if err := tty.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return None // one that cannot be left waiting
	}
	if _, err := tty.WriteString("\x1b[c"); err != nil {
		return None
	}
	var answer []byte
	buf := make([]byte, 256)
	for len(answer) < 1024 {
		n, err := tty.Read(buf)
		answer = append(answer, buf[:n]...)
		if m := attributes.FindSubmatch(answer); m != nil {
			return bySixel(string(m[1]))
		}
		if err != nil {
			return None
		}
	}
	return None
}

// bySixel returns Sixel if the numbers of an answer to DA1 have a 4.
func bySixel(numbers string) Protocol {
	for n := range strings.SplitSeq(numbers, ";") {
		if n == "4" {
			return Sixel
		}
	}
	return None
}
