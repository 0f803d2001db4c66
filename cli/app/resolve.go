package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/client"
	"berth/proto"
)

// NameLabel is the label that --name sets and that a container can be called by.
const NameLabel = "name"

// The fewest characters of an ID that stand for it, without the prefix that all of a kind have. IDs begin with the
// time: those of one day share five characters or so, and eight are a hundredth of a second. Their ends are what
// people tell them apart by.
const (
	leastPrefix = 8
	leastSuffix = 4
)

// shortened says how IDs may be abbreviated.
var shortened = fmt.Sprintf(
	"%d characters of an ID's beginning, or %d of its end, are enough where no other one has them", leastPrefix,
	leastSuffix)

// A candidate is something that has an ID and maybe a name.
type candidate struct{ id, name string }

// pick finds the one that text means: its whole ID, its name, or the beginning or end of its ID that no other
// one has. The prefix that all IDs of a kind have may be left out.
func pick(kind, prefix, text string, all []candidate) (string, error) {
	// In this order: a name that happens to be the beginning of another one's ID still means what
	// was named so.
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
		// The first test that anything fits decides, even if a later one would be unambiguous.
		case len(found) > 1:
			return "", ambiguous(kind, text, found)
		}
	}
	// Not NotFound, which rm -f takes for done.
	if slices.ContainsFunc(all, func(c candidate) bool {
		return strings.HasPrefix(c.id, text) ||
			strings.HasPrefix(c.id, prefix+text)
	}) {
		return "", WithHint(proto.Errorf(proto.InvalidArgument, "", text, "%q is too little of an ID to tell a %s by",
			text, kind), "give more of it; "+shortened)
	}
	return "", proto.Errorf(proto.NotFound, "", text, "no %s is called %q", kind, text)
}

// ambiguous is the error for a text that several IDs or names fit. It shows some of them, so that the next try can be
// right.
func ambiguous(kind, text string, found []string) error {
	slices.Sort(found)
	more := ""
	// Five fit a screen and are enough to see where they differ.
	if len(found) > 5 {
		found, more = found[:5], ", …"
	}
	return WithHint(proto.Errorf(proto.InvalidArgument, "", text, "%q may be any of several %ss: %s%s", text, kind,
		strings.Join(found, ", "), more),
		"give more of its ID; "+shortened)
}

// FindContainer finds a container's ID.
func (a *App) FindContainer(ctx context.Context, c *client.Client, text string) (string, error) {
	if proto.ValidID(proto.ContainerPrefix, text) {
		return text, nil // the daemon says more of one that is gone than a list does
	}
	// The daemon knows IDs alone; names and parts of IDs are looked for here, among what has not
	// expired.
	list, err := c.Containers(ctx, client.Filter{})
	if err != nil {
		return "", err
	}
	all := make([]candidate, len(list))
	for i, con := range list {
		all[i] = candidate{con.ID, con.Labels[NameLabel]}
	}
	id, err := pick("container", proto.ContainerPrefix, text, all)
	if proto.CodeOf(err) == proto.NotFound {
		return "", WithHint(err, "`berth ls` lists them")
	}
	return id, err
}

// IsNotFound reports whether err is that nothing here is called so, and not that the lookup failed: a server that is
// no daemon says NotFound too.
func IsNotFound(err error, name string) bool {
	return proto.CodeOf(err) == proto.NotFound && proto.AsError(err).Item == name
}

// FindExec finds an exec's ID; an empty text is the newest.
func (a *App) FindExec(ctx context.Context, c *client.Client, container, text string) (string, error) {
	if proto.ValidID(proto.ExecPrefix, text) {
		return text, nil
	}
	list, err := c.Execs(ctx, container)
	if err != nil {
		return "", err
	}
	if text == "" {
		return newest(container, list)
	}
	all := make([]candidate, len(list))
	for i, e := range list {
		all[i] = candidate{id: e.ID}
	}
	id, err := pick("exec", proto.ExecPrefix, text, all)
	if proto.CodeOf(err) == proto.NotFound {
		return "", WithHint(err, "`berth ps "+container+"` lists them")
	}
	return id, err
}

// newest is the last of a list that has the oldest first. Interpreters are left out: they are no command of the
// user's, and run on.
func newest(container string, list []proto.Exec) (string, error) {
	for _, e := range slices.Backward(list) {
		if !interpreter(e) {
			return e.ID, nil
		}
	}
	err := proto.Errorf(proto.NotFound, "", container, "no command has run in container %s yet", container)
	if len(list) == 0 {
		return "", err
	}
	return "", WithHint(err, "`berth ps "+container+"` lists the interpreters that did; name one of them")
}

// interpreter reports whether an exec is an interpreter that waits for cells, of a context or of the tool run_code.
// Nothing in the API says so but what package code calls them; nobody runs those in the foreground as a command of
// theirs.
func interpreter(e proto.Exec) bool {
	words := strings.Split(e.Command, " ")
	if e.Background || len(words) < 3 || !slices.Contains(proto.CodeLanguages, words[0]) {
		return false
	}
	return len(words) == 3 && words[1] == "context" || strings.Join(words[1:], " ") == "interpreter for run_code"
}

// FindContainerAndExec finds a container and one of its execs, from one or two arguments.
func (a *App) FindContainerAndExec(ctx context.Context, c *client.Client, args []string) (container, exec string, err error) {
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

// FindFile finds a stored file's ID, by its ID or filename.
// Filenames need not be unique; two of the same name are an ambiguity like any other.
func (a *App) FindFile(ctx context.Context, c *client.Client, text string) (string, error) {
	if proto.ValidID(proto.FilePrefix, text) {
		return text, nil
	}
	list, err := c.Files(ctx)
	if err != nil {
		return "", err
	}
	all := make([]candidate, len(list))
	for i, f := range list {
		all[i] = candidate{f.ID, f.Filename}
	}
	id, err := pick("stored file", proto.FilePrefix, text, all)
	if proto.CodeOf(err) == proto.NotFound {
		return "", WithHint(err, "`berth files ls` lists them")
	}
	return id, err
}
