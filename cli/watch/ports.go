package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
	"berth/proto"
)

// PortsCommand returns `berth ports`.
func PortsCommand(a *app.App) *cobra.Command {
	var publish, withdraw string
	cmd := &cobra.Command{
		Use: "ports [flags] CONTAINER", Short: "List the ports that programs in a container listen on",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		Long: "List the ports that programs in a container listen on. A container that is stopped or paused has " +
			"none, and is not woken. With --publish, anyone who can reach the daemon may use a port by its URL, " +
			"until --withdraw; the daemon must allow it (berth serve --ports-max public).",
		Example: "  berth ports CONTAINER\n  berth ports --publish 8000 CONTAINER\n" +
			"  berth ports --withdraw all CONTAINER",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			if publish != "" || withdraw != "" {
				return changePublic(ctx, a, c, id, publish, withdraw)
			}
			list, err := c.Ports(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(list)
			}
			var rows [][]string
			for _, p := range list {
				pid := "-"
				if p.PID != 0 {
					pid = strconv.Itoa(p.PID)
				}
				access := "private"
				if p.Public {
					access = "public"
				}
				rows = append(rows, []string{strconv.Itoa(int(p.Port)), p.Address, pid, cmp.Or(p.Program, "-"), access,
					cmp.Or(p.URL, "-")})
			}
			return a.Table([]string{"PORT", "ADDRESS", "PID", "PROGRAM", "ACCESS", "URL"}, rows)
		}),
	}
	cmd.Flags().StringVar(&publish, "publish", "", "port, or all, that anyone may use from now on")
	cmd.Flags().StringVar(&withdraw, "withdraw", "", "port, or all, that strangers may no longer use; their open "+
		"connections end")
	cmd.MarkFlagsMutuallyExclusive("publish", "withdraw")
	return a.AddFormatFlags(cmd)
}

// changePublic makes a port public or private again, and prints its URL or what is still public.
func changePublic(ctx context.Context, a *app.App, c *client.Client, id, publish, withdraw string) error {
	var now proto.PublishedPorts
	var err error
	if publish != "" {
		now, err = c.PublishPort(ctx, id, publish)
	} else {
		now, err = c.WithdrawPort(ctx, id, withdraw)
	}
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.PrintJSON(now)
	case now.URL != "":
		fmt.Fprintln(a.Stdout, now.URL)
	default:
		fmt.Fprintln(a.Stdout, "public:", proto.PublicPorts{All: now.All, Ports: now.Ports})
	}
	return nil
}

// OpenCommand returns `berth open`.
func OpenCommand(a *app.App) *cobra.Command {
	valid, public := time.Hour, false
	cmd := &cobra.Command{
		Use: "open [flags] CONTAINER PORT", Short: "Open a port of a container in a browser",
		Args: app.ArgCount(2, 2), ValidArgsFunction: a.CompleteContainers(1),
		Long: "Print a URL that opens a port of a container without an API key, and open it in the browser of this " +
			"machine if there is one. Who has the URL can use the port until it expires. With --public the port " +
			"becomes public first, and the URL is the plain one, which anyone may use until berth ports --withdraw.",
		Example: "  berth open CONTAINER 8000\n  berth open --expires 24h CONTAINER 8000\n" +
			"  berth open --public CONTAINER 8000",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return proto.Invalid("port", "%.20q is not a port; use a number from 1 to 65535", args[1])
			}
			if valid < time.Second {
				return proto.Invalid("expires", "--expires is %s; it must be one second or more", valid)
			}
			if public {
				now, err := c.PublishPort(ctx, id, args[1])
				if err != nil {
					return err
				}
				if a.JSON {
					return a.PrintJSON(now)
				}
				fmt.Fprintln(a.Stdout, now.URL)
				browse(ctx, now.URL)
				return nil
			}
			signed, err := c.SignPort(ctx, id, uint16(port), valid)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(signed)
			}
			fmt.Fprintln(a.Stdout, signed.URL)
			browse(ctx, signed.URL)
			return nil
		}),
	}
	cmd.Flags().DurationVar(&valid, "expires", valid, "how long the URL is valid, at most 168h")
	cmd.Flags().BoolVar(&public, "public", false, "make the port public, and open its plain URL")
	cmd.MarkFlagsMutuallyExclusive("expires", "public")
	return a.AddFormatFlags(cmd)
}

// browse opens a URL in the browser of a desktop. Without a desktop nothing happens: the URL was printed.
func browse(ctx context.Context, url string) {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return
	}
	if opener, err := exec.LookPath("xdg-open"); err == nil {
		_ = exec.CommandContext(ctx, opener, url).Run()
	}
}

// ForwardCommand returns `berth forward`.
func ForwardCommand(a *app.App) *cobra.Command {
	address := "127.0.0.1"
	cmd := &cobra.Command{
		Use: "forward [flags] CONTAINER [LOCAL:]PORT", Short: "Connect a port of this machine to a port of a container",
		Args: app.ArgCount(2, 2), ValidArgsFunction: a.CompleteContainers(1),
		Long: "Listen on a port of this machine, and pass each connection on to a port of a container, over TCP with " +
			"any protocol, until ^C. Without LOCAL, the ports are the same; 0 takes a free one. A connection wakes " +
			"a container that is stopped or paused.",
		Example: "  berth forward CONTAINER 8080:80\n  berth forward CONTAINER 5432",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			local, port, err := parseForward(args[1])
			if err != nil {
				return err
			}
			ln, err := net.Listen("tcp", net.JoinHostPort(address, local))
			if err != nil {
				return fmt.Errorf("listening on this machine: %w", err)
			}
			fmt.Fprintf(a.Stdout, "%s -> port %d of %s\n", ln.Addr(), port, id)
			return forward(ctx, ln, func(ctx context.Context, conn *net.TCPConn) {
				t, err := c.Tunnel(ctx, id, port)
				if err != nil {
					fmt.Fprintln(a.Stderr, "berth:", err)
					return
				}
				defer t.Close()
				exchange(conn, t)
			})
		}),
	}
	cmd.Flags().StringVar(&address, "address", address, "address of this machine to listen on")
	return cmd
}

// parseForward reads LOCAL:PORT or PORT.
func parseForward(text string) (local string, port uint16, err error) {
	local, remote, two := strings.Cut(text, ":")
	if !two {
		remote = local
	}
	n, err := strconv.ParseUint(remote, 10, 16)
	_, lerr := strconv.ParseUint(local, 10, 16)
	if err != nil || lerr != nil || n == 0 {
		return "", 0, proto.Errorf(proto.InvalidArgument, "", "port", "%q names no ports; write it as 8080:80, or 80",
			text)
	}
	return local, uint16(n), nil
}

// forward serves the connections of a listener until ctx ends.
func forward(ctx context.Context, ln net.Listener, serve func(context.Context, *net.TCPConn)) error {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			serve(ctx, conn.(*net.TCPConn))
		})
	}
}

// exchange copies both directions until each has ended. The end of one leaves the other open.
func exchange(conn *net.TCPConn, t *client.Tunnel) {
	in := make(chan struct{})
	go func() {
		defer close(in)
		if _, err := io.Copy(t, conn); err != nil || t.CloseWrite() != nil {
			_ = t.Close()
		}
	}()
	if _, err := io.Copy(conn, t); err != nil || conn.CloseWrite() != nil {
		_ = conn.Close()
	}
	<-in
}
