package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/client"
	"berth/proto"
)

// The fewest characters that identify an ID, without the prefix of its kind. IDs begin with the time: IDs of one day
// share about five characters, and eight characters are a hundredth of a second. People tell IDs apart by their ends.
const (
	leastPrefix = 8
	leastSuffix = 4
)

// shortened explains how IDs may be abbreviated.
var shortened = fmt.Sprintf(
	"%d characters of an ID's beginning, or %d of its end, are enough where no other one has them", leastPrefix,
	leastSuffix)

// shortID is how many characters of an ID's end tables show: enough to tell a million apart, and for pick.
const shortID = 6

// ShortID returns the end of an ID, which every command that takes the ID takes, too.
func ShortID(id string) string { return id[max(0, len(id)-shortID):] }

// A candidate is an item with an ID and maybe a name.
type candidate struct{ id, name string }

// pick returns the ID that text means: an ID, a name, or the beginning or end of an ID if only one ID has it. text
// may omit the prefix of the kind.
func pick(kind, prefix, text string, all []candidate) (string, error) {
	// The order matters: a name that equals the beginning of another item's ID still means the named item.
	rest := strings.TrimPrefix(text, prefix)
	tests := []func(candidate) bool{
		func(c candidate) bool { return c.id == text },
		func(c candidate) bool { return c.name != "" && c.name == text },
		func(c candidate) bool {
			return len(rest) >= leastPrefix && strings.HasPrefix(strings.TrimPrefix(c.id, prefix), rest)
		},
		func(c candidate) bool { return len(text) >= leastSuffix && strings.HasSuffix(c.id, text) },
	}
	if text == "" {
		return "", proto.Errorf(proto.InvalidArgument, "", kind, "the name of the %s is empty", kind)
	}
	for _, is := range tests {
		var found []string
		for _, c := range all {
			if is(c) {
				found = append(found, c.id)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		// The first test with a match decides, even if a later one would be unambiguous.
		case len(found) > 1:
			return "", ambiguous(kind, text, found)
		}
	}
	// Not NotFound, which rm -f takes for success.
	if slices.ContainsFunc(all, func(c candidate) bool {
		return strings.HasPrefix(c.id, text) ||
			strings.HasPrefix(c.id, prefix+text)
	}) {
		return "", WithHint(proto.Errorf(proto.InvalidArgument, "", text, "%q is too little of an ID to tell a %s by",
			text, kind), "give more of it; "+shortened)
	}
	return "", proto.Errorf(proto.NotFound, "", text, "no %s is called %q", kind, text)
}

// ambiguous returns the error for a text that matches several items. It shows some of them, so that the user can
// choose.
func ambiguous(kind, text string, found []string) error {
	slices.Sort(found)
	more := ""
	// Five fit on a screen and are enough to see the differences.
	if len(found) > 5 {
		found, more = found[:5], ", …"
	}
	return WithHint(proto.Errorf(proto.InvalidArgument, "", text, "%q may be any of several %ss: %s%s", text, kind,
		strings.Join(found, ", "), more),
		"give more of its ID; "+shortened)
}

// find returns the ID of the item in a list that text means. of returns the ID and name of an item. lister is the
// command that lists the items, for a hint. err is the error of the list.
func find[T any](kind, prefix, text, lister string, list []T, err error, of func(T) candidate) (string, error) {
	if err != nil {
		return "", err
	}
	all := make([]candidate, len(list))
	for i, item := range list {
		all[i] = of(item)
	}
	id, err := pick(kind, prefix, text, all)
	if proto.CodeOf(err) == proto.NotFound {
		return "", WithHint(err, "`"+lister+"` lists them")
	}
	return id, err
}

// FindContainer returns a container's ID. The daemon knows only IDs, so names and parts of IDs are looked up among the
// containers that have not expired.
func (a *App) FindContainer(ctx context.Context, c *client.Client, text string) (string, error) {
	if proto.ValidID(proto.ContainerPrefix, text) {
		return text, nil // the daemon's error says more about a deleted container than a list
	}
	list, err := c.Containers(ctx, client.Filter{})
	return find("container", proto.ContainerPrefix, text, "berth ls", list, err, func(con proto.Container) candidate {
		return candidate{con.ID, ContainerName(con)}
	})
}

// ContainerName returns a container's name. Before containers had names, --name set the label "name".
func ContainerName(con proto.Container) string { return cmp.Or(con.Name, con.Labels["name"]) }

// IsNotFound reports whether err means that no item has this name. It is false for a failed lookup: a server other
// than a daemon answers NotFound too.
func IsNotFound(err error, name string) bool {
	return proto.CodeOf(err) == proto.NotFound && proto.AsError(err).Item == name
}

// FindExec returns an exec's ID. An empty text means the newest.
func (a *App) FindExec(ctx context.Context, c *client.Client, container, text string) (string, error) {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil || proto.ValidID(proto.ExecPrefix, text) {
		return text, nil // the daemon knows running commands by their process IDs, too
	}
	list, err := c.Execs(ctx, container)
	if err == nil && text == "" {
		return newest(container, list)
	}
	return find("exec", proto.ExecPrefix, text, "berth ps "+container, list, err, func(e proto.Exec) candidate {
		return candidate{id: e.ID}
	})
}

// newest returns the last exec of a list that is sorted oldest first. It skips interpreters: the user did not start
// them, and they run on.
func newest(container string, list []proto.Exec) (string, error) {
	for _, e := range slices.Backward(list) {
		if !IsInterpreter(e) {
			return e.ID, nil
		}
	}
	err := proto.Errorf(proto.NotFound, "", container, "no command has run in container %s yet", container)
	if len(list) == 0 {
		return "", err
	}
	return "", WithHint(err, "`berth ps "+container+"` lists the interpreters that did; name one of them")
}

// IsInterpreter reports whether an exec is an interpreter that waits for cells, of a context or of the tool run_code.
// The API has no field for it, so the command's text decides: package code sets it, and users do not run such
// commands.
func IsInterpreter(e proto.Exec) bool {
	words := strings.Split(e.Command, " ")
	if e.Background || len(words) < 3 || !slices.Contains(proto.CodeLanguages, words[0]) {
		return false
	}
	return len(words) == 3 && words[1] == "context" || strings.Join(words[1:], " ") == "interpreter for run_code"
}

// FindContainerAndExec returns a container and one of its execs, from one or two arguments.
func (a *App) FindContainerAndExec(ctx context.Context, c *client.Client, args []string) (container, exec string,
	err error) {
	if container, err = a.FindContainer(ctx, c, args[0]); err != nil {
		return "", "", err
	}
	text := ""
	if len(args) > 1 {
		text = args[1]
	}
	exec, err = a.FindExec(ctx, c, container, text)
	return container, exec, err
}

// FindFile returns a stored file's ID, by its ID or filename. If two files have the same name, the name is ambiguous.
func (a *App) FindFile(ctx context.Context, c *client.Client, text string) (string, error) {
	if proto.ValidID(proto.FilePrefix, text) {
		return text, nil
	}
	list, err := c.Files(ctx)
	return find("stored file", proto.FilePrefix, text, "berth files ls", list, err, func(f client.File) candidate {
		return candidate{f.ID, f.Filename}
	})
}

// EachContainer calls fn for every named container. An error for one container does not stop the others. The errors
// are joined, and each is printed on its own line.
func (a *App) EachContainer(ctx context.Context, c *client.Client, names []string, fn func(id string) error) error {
	return EachName(ctx, names, func(name string) error {
		id, err := a.FindContainer(ctx, c, name)
		if err != nil {
			return err
		}
		return fn(id)
	})
}

// EachName is EachContainer for names that fn resolves itself.
func EachName(ctx context.Context, names []string, fn func(name string) error) error {
	var errs []error
	for _, name := range names {
		err := fn(name)
		// Ten names without a daemon should cause one error, not ten.
		if ctx.Err() != nil || IsFatal(err) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// IsFatal reports whether the next attempt would fail in the same way: no daemon, or an unknown key, fails for every
// name.
func IsFatal(err error) bool {
	var dial *client.DialError
	return errors.As(err, &dial) || proto.CodeOf(err) == proto.Unauthenticated && err != nil
}
