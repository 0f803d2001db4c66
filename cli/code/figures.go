package code

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"berth/cli/app"
	"berth/cli/code/picture"
	"berth/cli/term"
	"berth/proto"
)

// imageTypes maps the media types of figures to file extensions.
var imageTypes = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg"}

// imageOf returns the image of a result in one media type, or nil if it has none of that type.
func imageOf(b proto.Bundle, media string) ([]byte, error) {
	var text string
	if json.Unmarshal(b[media], &text) != nil || text == "" {
		return nil, nil
	}
	if media == "image/svg+xml" {
		return []byte(text), nil
	}
	return base64.StdEncoding.DecodeString(text)
}

// saveFigures writes the images of the results into an existing directory and prints each file's name.
func saveFigures(a *app.App, res proto.Outcome, dir string) error {
	if dir == "" {
		return nil
	}
	for i, b := range res.Rich {
		for media, ext := range imageTypes {
			data, err := imageOf(b, media)
			if err != nil {
				return fmt.Errorf("result %d: %w", i+1, err)
			}
			if data == nil {
				continue
			}
			name := filepath.Join(dir, fmt.Sprintf("figure-%d%s", i+1, ext))
			if err := os.WriteFile(name, data, 0o644); err != nil {
				return err
			}
			if !a.Quiet {
				fmt.Fprintln(a.Stderr, "berth: wrote "+term.Printable(name))
			}
		}
	}
	return nil
}

// drawFigures draws the images of the results in the terminal, one below the other. A figure that cannot be drawn
// does not keep the others.
func (f *codeFlags) drawFigures(a *app.App, res proto.Outcome) error {
	if a.JSON || !hasImages(res) {
		return nil
	}
	p := picture.Protocol(f.draw)
	if p == picture.Auto {
		p = picture.Of(a.Stdout)
	}
	if p == picture.None {
		return nil
	}
	var errs []error
	for _, b := range res.Rich {
		for _, media := range []string{"image/png", "image/jpeg"} {
			data, err := imageOf(b, media)
			if data != nil {
				err = p.Draw(a.Stdout, data)
			}
			errs = append(errs, err)
			if data != nil {
				break // the same figure in another format
			}
		}
	}
	return errors.Join(errs...)
}

// hasImages reports whether a result has an image.
func hasImages(res proto.Outcome) bool {
	return slices.ContainsFunc(res.Rich, func(b proto.Bundle) bool {
		for media := range imageTypes {
			if b[media] != nil {
				return true
			}
		}
		return false
	})
}
