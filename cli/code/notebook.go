package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/cli/app"
	"berth/cli/code/ipynb"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// cleanupTime bounds the deletion of what a notebook ran in, also after an interrupt.
const cleanupTime = 30 * time.Second

// isNotebook reports whether a file is a notebook, by its name.
func isNotebook(file string) bool { return strings.EqualFold(filepath.Ext(file), ".ipynb") }

// runNotebook runs the cells of a notebook one after the other, until one fails. It prints what they print, and
// writes the notebook with their outputs where the flags say.
func runNotebook(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, container, file string) error {
	data, err := app.ReadInput(file, ipynb.MaxBytes)
	if err != nil {
		return err
	}
	n, err := ipynb.Parse(file, data)
	if err != nil {
		return err
	}
	language := cmp.Or(f.language, n.Language())
	if language != "" && !slices.Contains(proto.CodeLanguages, language) {
		return proto.Errorf(proto.InvalidArgument, "", file, "the notebook is in %.40q; use --language with one of %s",
			language, strings.Join(proto.CodeLanguages, ", "))
	}
	if err := f.makeRoom(); err != nil {
		return err
	}
	place, leave, err := f.place(ctx, c, container)
	if err != nil {
		return err
	}
	defer leave()
	place.language = language
	failed := place.runCells(ctx, a, c, f, n)
	out, err := n.Encode()
	if err != nil {
		return err
	}
	if f.output != "" {
		err = os.WriteFile(f.output, out, 0o644)
	} else if a.JSON {
		_, err = a.Stdout.Write(out)
	}
	return errors.Join(failed, err)
}

// A notebookPlace is the context in which a notebook runs.
type notebookPlace struct{ container, context, language string }

// place returns where the notebook runs: a named context, a new context of a container, or that of a new container.
// What is new is deleted by leave.
func (f *codeFlags) place(ctx context.Context, c *client.Client, container string) (p notebookPlace, leave func(),
	err error) {
	if f.context != "" {
		if f.forNew() {
			return p, nil, errForNew
		}
		return notebookPlace{container: container, context: f.context}, func() {}, nil
	}
	after := func(del func(ctx context.Context) error) func() {
		return func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			defer cancel()
			_ = del(ctx) // it goes by itself: the container was made to last for a day at most
		}
	}
	name := fmt.Sprintf("notebook-%d-%d", os.Getpid(), time.Now().UnixNano())
	if container != "" {
		if f.forNew() {
			return p, nil, errForNew
		}
		return notebookPlace{container: container, context: name}, after(func(ctx context.Context) error {
			return c.DeleteContext(ctx, container, name)
		}), nil
	}
	req := proto.CreateContainer{Image: f.image, Network: f.network.Request(), MaxLifetimeSeconds: 24 * 3600}
	confinement, err := f.confinement.Request()
	if err != nil {
		return p, nil, err
	}
	req.RuntimeClass, req.Limits = confinement.RuntimeClass, confinement.Limits
	if req.Env, err = flags.Env(f.env); err != nil {
		return p, nil, err
	}
	if len(f.secrets)+len(f.secretHosts) > 0 {
		return p, nil, proto.Errorf(proto.InvalidArgument, "", "secret", "--secret is for code without a notebook; "+
			"create a container with --secret, and name it before the notebook")
	}
	made, err := c.Create(ctx, req)
	if err != nil {
		return p, nil, err
	}
	return notebookPlace{container: made.ID, context: name}, after(func(ctx context.Context) error {
		_, err := c.Delete(ctx, made.ID, false)
		return err
	}), nil
}

// forNew reports whether flags are set that only a new container can take.
func (f *codeFlags) forNew() bool {
	confined, err := f.confinement.Request()
	return len(f.env)+len(f.secrets) > 0 || f.image != "" || !f.network.Request().IsZero() || err != nil ||
		!confined.IsZero()
}

var errForNew = proto.Errorf(proto.InvalidArgument, "", "container", "--env, --secret, --image, --class, limits, "+
	"--network and --allow are for a new container; leave them out, or leave out CONTAINER")

// runCells runs the cells that have code, and keeps their outcomes in the notebook. It returns how the first cell
// failed that was not expected to.
func (p notebookPlace) runCells(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, n *ipynb.Notebook) (
	err error) {
	total, count := 0, 0
	for _, cell := range n.Cells {
		if cell.IsCode() {
			total++
		}
	}
	for _, cell := range n.Cells {
		if !cell.IsCode() {
			continue
		}
		count++
		if !a.Quiet && !a.JSON {
			fmt.Fprintf(a.Stderr, "berth: cell %d of %d\n", count, total)
		}
		res, err := p.runCell(ctx, a, c, f, count, cell.Source)
		if err != nil {
			return fmt.Errorf("cell %d of %d: %w", count, total, err)
		}
		if err := cell.SetOutcome(count, res); err != nil {
			return err
		}
		if res.ErrorDetail != nil && !cell.MayFail() {
			fmt.Fprintf(a.Stderr, "berth: cell %d of %d failed; the later ones did not run\n", count, total)
			return failed(res)
		}
	}
	return nil
}

// runCell runs one cell and prints what it prints and shows.
func (p notebookPlace) runCell(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, count int,
	source string) (proto.Outcome, error) {
	print := a.NewPrinter()
	each := func(proto.Progress) error { return nil }
	if !a.JSON {
		each = printTo(print)
	}
	res, err := c.RunCell(ctx, p.container, p.context, proto.Cell{Code: source, Language: p.language,
		TimeoutSeconds: f.timeout.Seconds()}, each)
	if err != nil {
		return res, err
	}
	var exit app.ExitError
	if !a.JSON {
		if err := printOutcome(a, res, print); err != nil && !errors.As(err, &exit) {
			return res, err
		}
	}
	if err := f.drawFigures(a, res); err != nil {
		return res, err
	}
	if f.figures == "" || !hasImages(res) {
		return res, nil
	}
	dir := filepath.Join(f.figures, fmt.Sprintf("cell-%d", count))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return res, fmt.Errorf("figures of %s: %w", term.Printable(dir), err)
	}
	return res, saveFigures(a, res, dir)
}
