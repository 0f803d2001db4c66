package envd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"sync"

	"berth/api/e2b/connectrpc"
	"berth/proto"
)

const (
	passwd      = "/etc/passwd"
	maxAccounts = 1 << 20 // bytes that are read of the list of users
	maxHomes    = 10_000  // that are remembered
	usualHome   = "/home/user"
)

// homes remembers the home directories of users.
type homes struct {
	mu  sync.Mutex
	all map[homeKey]string
}

type homeKey struct {
	container  string
	generation int64
	user       string
}

// home returns the home directory of the user. A user that the container does not have is unauthenticated.
func (b box) home(ctx context.Context) (string, error) {
	key := homeKey{b.s.ID(), b.s.Info().Generation, b.user}
	b.homes.mu.Lock()
	home, ok := b.homes.all[key]
	b.homes.mu.Unlock()
	if ok {
		return home, nil
	}
	home, err := b.lookUpHome(ctx)
	if err != nil {
		return "", err
	}
	b.homes.mu.Lock()
	defer b.homes.mu.Unlock()
	if b.homes.all == nil || len(b.homes.all) >= maxHomes {
		b.homes.all = map[homeKey]string{}
	}
	b.homes.all[key] = home
	return home, nil
}

// lookUpHome reads the list of users of the container, which code there may write.
func (b box) lookUpHome(ctx context.Context) (string, error) {
	r, _, err := b.s.ReadFile(ctx, proto.UserRoot, passwd, 0, maxAccounts)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		return "", err
	}
	var list []byte
	if err == nil {
		list, err = io.ReadAll(io.LimitReader(r, maxAccounts))
		if err = errors.Join(err, r.Close()); err != nil {
			return "", err
		}
	}
	name, _, _ := strings.Cut(b.user, ":")
	for sc := bufio.NewScanner(bytes.NewReader(list)); sc.Scan(); {
		f := strings.Split(sc.Text(), ":")
		if len(f) > 5 && (f[0] == name || f[2] == name) {
			if !path.IsAbs(f[5]) {
				return "/", nil
			}
			return path.Clean(f[5]), nil
		}
	}
	switch b.user {
	case proto.UserDefault: // each container has this user, in the list or not
		if fi, err := b.s.Stat(ctx, proto.UserRoot, usualHome); err == nil && fi.Type == proto.TypeDirectory {
			return usualHome, nil
		}
		return "/", nil
	case proto.UserRoot:
		return "/", nil
	}
	return "", connectrpc.Errorf(connectrpc.Unauthenticated, proto.Unauthenticated, "invalid username: '%s'",
		proto.Shorten(strings.ToValidUTF8(b.user, "\uFFFD"), 80))
}
