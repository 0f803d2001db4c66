package attack

import (
	"context"
	"fmt"
	"strings"
)

// firstLine waits for the first line that a running command prints. After it, the command is known to have reached
// that point, without a fixed delay.
func (t *Target) firstLine(ctx context.Context, container, exec string) (string, error) {
	live, err := t.Live(ctx, container)
	if err != nil {
		return "", err
	}
	defer live.Close()
	if err := live.Attach("first", exec, 0, 0); err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		e, err := live.Next(ctx)
		if err != nil {
			return "", err
		}
		switch e.Type {
		case "stdout":
			text.Write(e.DataBase64)
			if line, _, whole := strings.Cut(text.String(), "\n"); whole {
				return line, nil
			}
		case "exit", "error":
			return "", fmt.Errorf("the command ended before it said anything: %.300s", text.String())
		}
	}
}
