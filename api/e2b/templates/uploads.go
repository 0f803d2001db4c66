package templates

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"berth/proto"
)

const (
	// linkLife is how long a link for an upload is valid: as long as clients take for an upload at the most.
	linkLife = time.Hour
	// uploadAge is how long an upload is kept that no build uses.
	uploadAge = 7 * 24 * time.Hour
	// maxMembers bounds the files of one upload.
	maxMembers = 200_000
)

// uploads are the files of COPY steps: tars as clients sent them, by owner and by the hash that the client gave them.
// The hash covers what only the client knows, so it is not checked against the content. It is a name among the uploads
// of its owner, who alone could be deceived by it.
type uploads struct {
	dir  string
	most int64 // bytes of one upload, unpacked
	keep int64 // bytes of all uploads of an owner
}

func (u uploads) path(owner, hash string) string {
	return filepath.Join(u.dir, fingerprint(owner), hash+".tar")
}

// has reports whether an upload is there.
func (u uploads) has(owner, hash string) bool {
	_, err := os.Stat(u.path(owner, hash))
	return err == nil
}

// store stores an upload. Nothing is stored unless it is a whole tar.
func (u uploads) store(ctx context.Context, owner, hash string, body io.Reader) error {
	final := u.path(owner, hash)
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(final), "incoming-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more if all went well
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(wanted{ctx, body}, u.most+1))
	switch {
	case err != nil:
		return cause(ctx, err)
	case n > u.most:
		return u.tooLarge()
	}
	if _, err := u.read(f.Name(), nil); err != nil {
		return err
	}
	if err := errors.Join(f.Close(), os.Rename(f.Name(), final)); err != nil {
		return err
	}
	return u.prune(filepath.Dir(final), final)
}

func (u uploads) tooLarge() error {
	return proto.Errorf(proto.TooLarge, "", "files", "the files of one COPY have more than %d MiB; leave out with a "+
		".dockerignore what the template does not need", u.most>>20)
}

// read reads an upload and returns the clean names in it. add, if it is not nil, gets each member.
func (u uploads) read(file string, add func(name string, h *tar.Header, content io.Reader) error) (names []string,
	err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var plain io.Reader = bufio.NewReaderSize(f, 64<<10)
	if head, _ := plain.(*bufio.Reader).Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(plain)
		if err != nil {
			return nil, noTar(err)
		}
		defer z.Close()
		plain = z
	}
	bounded := &io.LimitedReader{R: plain, N: u.most + 1}
	for tr := tar.NewReader(bounded); ; {
		h, err := tr.Next()
		switch {
		case bounded.N == 0:
			return nil, u.tooLarge()
		case err == io.EOF:
			return names, nil
		case err != nil:
			return nil, noTar(err)
		case len(names) >= maxMembers:
			return nil, proto.Errorf(proto.TooLarge, "", "files", "one COPY has more than %d files", maxMembers)
		}
		name := path.Clean(strings.TrimPrefix(path.Clean("/"+h.Name), "/"))
		names = append(names, name)
		if add == nil {
			continue
		}
		if err := add(name, h, tr); err != nil {
			return nil, err
		}
	}
}

func noTar(err error) error {
	return proto.Invalid("files", "the upload must be a tar, plain or compressed with gzip: %v", err)
}

// use marks an upload as used, so that it stays.
func (u uploads) use(owner, hash string) error {
	at := time.Now()
	return os.Chtimes(u.path(owner, hash), at, at)
}

// prune removes the oldest uploads of an owner that are too many, but not the one that is kept, and those that have not
// been used for long.
func (u uploads) prune(dir, kept string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	var total int64
	for _, info := range infos {
		total += info.Size()
		name := filepath.Join(dir, info.Name())
		if name != kept && (total > u.keep || time.Since(info.ModTime()) > uploadAge) {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return err
}

// A wanted reader reads until its context ends.
type wanted struct {
	ctx context.Context
	in  io.Reader
}

func (w wanted) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.in.Read(p)
}

// An Upload is the answer to the question whether files are there. It has a link for them if they are not, and also if
// they are, for clients that send them again.
type Upload struct {
	Present bool   `json:"present"`
	URL     string `json:"url"`
}

// Link answers whether the files of a COPY step are there. root is the address of the daemon as the client has it.
func (t *Templates) Link(who proto.Caller, hash, root string) (up Upload, err error) {
	if !hashForm.MatchString(hash) {
		return up, proto.Invalid("hash", "hash must be a SHA-256 in lower-case hexadecimal digits")
	}
	expires := strconv.FormatInt(time.Now().Add(linkLife).Unix(), 10)
	q := url.Values{"owner": {who.Owner}, "key": {who.KeyID}, "expires": {expires},
		"signature": {t.sign(who.Owner, who.KeyID, hash, expires)}}
	return Upload{t.uploads.has(who.Owner, hash), root + "/templates/files/" + hash + "?" + q.Encode()}, nil
}

// sign returns the signature of a link.
func (t *Templates) sign(owner, keyID, hash, expires string) string {
	h := hmac.New(sha256.New, t.key)
	fmt.Fprintf(h, "%q %q %q %q", owner, keyID, hash, expires)
	return hex.EncodeToString(h.Sum(nil))
}

// Signed returns on whose behalf an upload to a link comes. Whether the API key is still valid is another question.
func (t *Templates) Signed(hash string, q url.Values) (who proto.Caller, err error) {
	who = proto.Caller{Owner: q.Get("owner"), KeyID: q.Get("key")}
	expires := q.Get("expires")
	want := t.sign(who.Owner, who.KeyID, hash, expires)
	if !hashForm.MatchString(hash) || !hmac.Equal([]byte(want), []byte(q.Get("signature"))) {
		return proto.Caller{}, proto.Errorf(proto.PermissionDenied, "", "signature", "the link is not valid; ask for "+
			"another")
	}
	if at, err := strconv.ParseInt(expires, 10, 64); err != nil || time.Now().Unix() >= at {
		return proto.Caller{}, proto.Errorf(proto.PermissionDenied, "", "signature", "the link has expired; ask for "+
			"another")
	}
	return who, nil
}

// Store stores the files of a COPY step.
func (t *Templates) Store(ctx context.Context, owner, hash string, body io.Reader) error {
	ctx, enough := t.cfg.Images.KeepReserve(ctx, "upload", hash)
	defer enough()
	return t.uploads.store(ctx, owner, hash, body)
}
