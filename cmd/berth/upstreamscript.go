package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"berth/test/scripted"

	"github.com/spf13/cobra"
)

// upstreamScriptCommand returns `berth upstream-script`: a model that gives the answers of a script.
func upstreamScriptCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "upstream-script FILE",
		Short: "Play a model from a script, as an upstream to try things with",
		Long: `Serve POST /v1/messages, /v1/messages/count_tokens and /v1/chat/completions with the answers that a script has, until it is interrupted.

The URL to give to 'berth serve --upstream' is printed once it listens. A request that the script does not expect is answered with an error that
says what is different, which is printed too; the exit status is then 1.

A script is JSON. Its turns are played in their order, one for each request:

  {"turns": [
    {"expect": {"tools": ["bash_code_execution"], "last": [{"type": "text", "text": {"$contains": "date"}}]},
     "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "date"}}]}},
    {"expect": {"messages": 3},
     "answer": {"content": [{"type": "text", "text": {"$join": ["It is ", {"$from": "/messages/-1/content/0/content"}]}}]}}
  ], "loop": true}

What is expected may be left out. {"$from": POINTER} takes a value from the request, {"$from": POINTER, "match": REGEXP} the part of its text that
fits. An answer may also be {"error": {"status": 529, "message": "…"}}, have "headers", "usage", "stop_reason", "pauses" such as
[{"before_event": 3, "for": "1s"}], and a "cut" such as {"after_events": 4, "by": "break"}. Several conversations, each for the requests that fit
its "when", are {"conversations": [{"when": {"model": "a"}, "turns": […]}, …]}. Message threads are kept, and refused where "plain" is true, as an
API without them does. The package test/scripted documents all of it.`,
		Example: "  berth upstream-script script.json --listen 127.0.0.1:9000\n  berth serve --upstream " +
			"http://127.0.0.1:9000",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return playScript(cmd, args[0], listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to serve HTTP on; port 0 takes a free one")
	return cmd
}

func playScript(cmd *cobra.Command, path, listen string) error {
	srv, err := openScript(cmd, path)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(
		net.Listener) context.Context {
		return ctx
	}}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", ln.Addr())
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if left := srv.Left(); left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d turns of the script were not played\n", left)
	}
	if srv.Err() != nil {
		return errors.New("there were requests that the script does not expect; they are above")
	}
	return nil
}

// openScript reads a script, and prints its errors as they occur.
func openScript(cmd *cobra.Command, path string) (*scripted.Server, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	script, err := scripted.Load(f)
	if err != nil {
		return nil, err
	}
	srv := scripted.New(script)
	srv.Tell = func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), err) }
	return srv, nil
}
