package bench

import "context"

// Names of floors and comparators.
const (
	ddSynced  = "dd and fdatasync"
	ddInside  = "dd in a container" // on the file system of the container's files
	pageCache = "page-cache copy"
	dockerCp  = "docker cp"
)

// upload measures storing a file, and writing one into a container.
func (b *bench) upload(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx, 1, b.megabytes()<<20)
	if err != nil {
		return err
	}
	defer t.close()
	// The dd in the container must also read from memory.
	if err := t.put(ctx, sourceInside); err != nil {
		return err
	}
	turns := []*turn{
		t.dd(ddSynced, t.source, t.disk, "conv=fdatasync"),
		t.dd("dd", t.source, t.disk),
		{name: "sha256sum", role: Floor, unit: t.unit(), op: func(ctx context.Context) (float64, error) {
			return t.speed(func() error { return command(ctx, "sha256sum", t.source) })
		}},
		t.floorInside(ddInside, "dd if="+sourceInside+" of="+inside+" bs=1M status=none"),
	}
	if c := b.other(ctx, res, "docker"); c != nil {
		turns = append(turns, t.sending(c, dockerCp, 1))
	}
	turns = append(turns, t.storing("Files API"), t.writing())
	if err := b.inTurns(ctx, res, b.rounds(3), t.even(turns)); err != nil {
		return err
	}
	res.against("Files API", atLeast(0.5), ddSynced)
	res.against("Files API", more, "dd", "sha256sum")
	res.against(intoContainer, atLeast(0.5), ddInside)
	res.against(intoContainer, more, "dd")
	res.against(intoContainer, atLeast(2), dockerCp)
	res.note("%d MiB that do not compress, from memory. A stored file is hashed and on disk when it is answered, so "+
		"that SHA-256 is a bound; one in a container is in the page cache of the containers' own file system, as "+
		"what dd writes there is, and docker's in that of its layers'.", t.bytes>>20)
	return nil
}

// download measures reading a stored file, and reading one out of a container.
func (b *bench) download(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx, 1, b.megabytes()<<20)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.keep(ctx); err != nil {
		return err
	}
	turns := []*turn{t.dd(pageCache, t.kept, t.sink)}
	if c := b.other(ctx, res, "docker"); c != nil {
		turns = append(turns, t.fetching(c, dockerCp, 1))
	}
	turns = append(turns, t.loading("Files API"), t.reading())
	if err := b.inTurns(ctx, res, b.rounds(4), t.even(turns)); err != nil {
		return err
	}
	res.against("Files API", atLeast(0.5), pageCache)
	res.against(outOfContainer, atLeast(0.5), pageCache)
	res.against(outOfContainer, atLeast(2), dockerCp)
	res.note("%d MiB into a file in memory, also the copy, which dd makes of a file in the page cache.", t.bytes>>20)
	return nil
}
