package tools

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
	"berth/proto"
)

// maxBlock is the maximum size of a tool-use block, in bytes. The daemon has the same limit.
const maxBlock = 2 << 20

// ToolCommand returns `berth tool`. It prints the result block in any case: an error for the model is a result, and
// the exit status stays 0.
func ToolCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "tool [CONTAINER] BLOCK", Short: "Give a model's tool-use block to a container and print the result block",
		Args: app.ArgCount(1, 2), ValidArgsFunction: a.CompleteContainers(1),
		Long: `Run a model's tool-use block and print the result block. The block is passed on unchanged. Tools:
bash_code_execution, text_editor_code_execution, bash, str_replace_based_edit_tool.

BLOCK is a file with the block's JSON; "-" is standard input. Without CONTAINER a new one is created. The result names
it.`,
		Example: `  berth tool CONTAINER - <<'END'
  {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
  END`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
			container := ""
			// The block is always the last argument, so that the container can be omitted.
			if len(args) == 2 {
				if container, err = a.FindContainer(ctx, c, args[0]); err != nil {
					return err
				}
			}
			block, err := readBlock(args[len(args)-1])
			if err != nil {
				return err
			}
			result, err := c.UseTool(ctx, container, block)
			if err != nil {
				return err
			}
			return a.PrintJSON(result)
		}),
	}
}

// readBlock reads a block from a file, or from standard input.
func readBlock(name string) (json.RawMessage, error) {
	data, err := app.ReadInput(name, maxBlock)
	if err != nil {
		return nil, err
	}
	// Checked here, because the daemon's error for a truncated block would be about the request.
	if len(data) > maxBlock || !json.Valid(data) {
		return nil, proto.Errorf(proto.InvalidArgument, "", name, "%s does not hold one JSON block of at most 2 MiB",
			name)
	}
	return data, nil
}
