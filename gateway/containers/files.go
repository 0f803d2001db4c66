package containers

import (
	"context"
	"fmt"
	"strings"

	"berth/gateway"
	"berth/proto"
)

// maxNamed is how many files one note names.
const maxNamed = 10

// leaveOutNested removes the files from a result that are not at the top of $OUTPUT_DIR, as the hosted tool does. They
// stay stored, and a note tells the model.
func (c container) leaveOutNested(ctx context.Context, res *gateway.Result) {
	var nested []string
	// isNested finds a file by its name, which is its path below $OUTPUT_DIR.
	isNested := func(id string) bool {
		f, err := c.h.cfg.Files.Get(ctx, c.s.Owner(), id)
		if err != nil || !strings.Contains(f.Filename, "/") {
			return false
		}
		nested = append(nested, f.Filename)
		return true
	}
	if res.Code != nil {
		top := []string{}
		for _, id := range res.Code.Files {
			if !isNested(id) {
				top = append(top, id)
			}
		}
		res.Code.Files = top
	}
	if content, ok := res.Content.(proto.BashContent); ok && content.Result != nil {
		result := *content.Result // the command keeps its own
		result.Content = []proto.BashOutput{}
		for _, f := range content.Result.Content {
			if !isNested(f.FileID) {
				result.Content = append(result.Content, f)
			}
		}
		res.Content = proto.BashContent{Result: &result}
	}
	if len(nested) == 0 {
		return
	}
	names := strings.Join(nested[:min(len(nested), maxNamed)], ", ")
	if more := len(nested) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	res.Notes = append(res.Notes, "stored, but not handed to the user: "+names+
		"; only files directly in $OUTPUT_DIR are")
}
