package bench

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	lineHeight = 22
	labelWidth = 380
	plotWidth  = 420
	margin     = 12
)

// SVG draws all ratios that have a target. A bar shows the distance from the target on a logarithmic scale. Left of
// the center line is better.
func (r Report) SVG() string {
	type bar struct {
		label string
		off   float64 // log2 of the factor by which it is worse than the target
		held  bool
		text  string
	}
	var bars []bar
	for _, res := range r.Rows {
		for _, ratio := range res.Ratios {
			if res.Class != "" || ratio.Target == 0 || ratio.Value <= 0 {
				continue
			}
			off := math.Log2(ratio.Value / ratio.Target)
			if ratio.Higher {
				off = -off
			}
			bars = append(bars, bar{res.Row + ": " + ratio.Name, off, ratio.Held(), number(ratio.Value) + " (target " +
				number(ratio.Target) + ")"})
		}
	}
	width, height := labelWidth+plotWidth+2*margin, (len(bars)+2)*lineHeight+2*margin
	middle := float64(labelWidth + plotWidth/2)
	var w strings.Builder
	fmt.Fprintf(
		&w,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&w, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(
		&w,
		`<text x="%d" y="%d">berth %s: ratios and their targets (left of the line is better; each step is a factor of 2)</text>`+"\n", margin, margin+lineHeight/2, escape(r.Stamp.Version))
	const steps = 4 // on each side
	for step := -steps; step <= steps; step++ {
		x := middle + float64(step)*plotWidth/(2*steps)
		color := "#ddd"
		if step == 0 {
			color = "#000"
		}
		fmt.Fprintf(&w, `<line x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d" stroke="%s"/>`+"\n", x, margin+lineHeight,
			height-margin, color)
	}
	for i, b := range bars {
		y := margin + (i+1)*lineHeight
		end := middle + max(-steps, min(steps, b.off))*plotWidth/(2*steps)
		color := "#2a7"
		if !b.held {
			color = "#c43"
		}
		fmt.Fprintf(&w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.6"/>`+"\n",
			min(middle, end), y+4, max(1, math.Abs(end-middle)), lineHeight-8, color)
		fmt.Fprintf(&w, `<text x="%d" y="%d">%s</text>`+"\n", margin, y+lineHeight-7, escape(b.label))
		fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="end" fill="#333">%s</text>`+"\n", width-margin,
			y+lineHeight-7, escape(b.text))
	}
	w.WriteString("</svg>\n")
	return w.String()
}

func escape(s string) string {
	var w strings.Builder
	_ = xml.EscapeText(&w, []byte(s)) // cannot fail: w is a Builder
	return w.String()
}

// SaveSVG writes the plot.
func SaveSVG(file string, r Report) error {
	return write(file, []byte(r.SVG()))
}
