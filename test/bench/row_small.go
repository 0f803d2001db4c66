package bench

import (
	"context"
	"fmt"
)

// Names of docker's copies in rows with both directions.
const (
	dockerInto  = "docker cp into a container"
	dockerOutOf = "docker cp out of a container"
)

// both returns turns that copy into and out of the container, and docker's copies before them.
func (b *bench) both(ctx context.Context, res *Result, t *transfer, every int) (turns []*turn) {
	if c := b.other(ctx, res, "docker"); c != nil {
		turns = append(turns, t.sending(c, dockerInto, every), t.fetching(c, dockerOutOf, every))
	}
	return append(turns, t.writing(), t.reading())
}

// beside adds the ratios of the container's copies to docker's.
func (r *Result) beside() {
	r.against(intoContainer, atLeast(2), dockerInto)
	r.against(outOfContainer, atLeast(2), dockerOutOf)
}

// mebibyte measures 1 MiB: storing it, reading it, and copying it into and out of a container.
func (b *bench) mebibyte(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx, 1, 1<<20)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.keep(ctx); err != nil {
		return err
	}
	const into, outOf = "into the Files API", "out of the Files API"
	turns := append([]*turn{t.dd(ddSynced, t.source, t.disk, "conv=fdatasync"), t.dd(pageCache, t.kept, t.sink)},
		b.both(ctx, res, t, 2)...)
	if err := b.inTurns(ctx, res, b.rounds(30), t.even(append(turns, t.storing(into), t.loading(outOf)))); err != nil {
		return err
	}
	res.against(into, atLeast(0.5), ddSynced)
	res.against(outOf, atLeast(0.5), pageCache)
	res.against(outOfContainer, atLeast(0.5), pageCache)
	res.beside()
	res.note("1 MiB that does not compress, from a file in memory and into one. dd pays for the start of a program, " +
		"as docker does, and ours for HTTP.")
	return nil
}

// manyFiles returns how many files the row "many" copies.
func (b *bench) manyFiles() int {
	if b.Quick {
		return 3 * perDirectory
	}
	return 100 * perDirectory
}

// many measures copying a directory of small files into and out of a container, as one archive.
func (b *bench) many(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx, b.manyFiles(), 4<<10)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.keep(ctx); err != nil {
		return err
	}
	if err := t.put(ctx, sourceInside); err != nil {
		return err
	}
	const cpToDisk, cpToMemory, cpInside, tarToDisk, tarToMemory = "cp -r to disk", "cp -r to memory",
		"cp -r in a container", "tar to disk", "tar to memory"
	turns := append([]*turn{
		t.floor(cpToDisk, t.disk, "cp", "-r", t.source, t.disk),
		t.floor(cpToMemory, t.sink, "cp", "-r", t.kept, t.sink),
		t.floorInside(cpInside, "cp -r "+sourceInside+" "+inside),
		t.floor(tarToDisk, t.disk, "sh", "-c", tarPipe(t.source, t.disk)),
		t.floor(tarToMemory, t.sink, "sh", "-c", tarPipe(t.kept, t.sink)),
	}, b.both(ctx, res, t, 1)...)
	if err := b.inTurns(ctx, res, b.rounds(3), t.even(turns)); err != nil {
		return err
	}
	res.against(intoContainer, more, cpInside, cpToDisk, tarToDisk)
	res.against(outOfContainer, more, cpToMemory, tarToMemory)
	res.beside()
	res.note("%d files of 4 KiB in %d directories, from memory to the disk's page cache or from there to memory. "+
		"Ours are packed and unpacked by what `berth cp` has, file by file; containers have a file system of their "+
		"own; tar is `tar -c | tar -x` on this machine.", t.files, t.files/perDirectory)
	return nil
}

// tarPipe returns a shell command that copies a directory through a tar pipe.
func tarPipe(from, to string) string {
	return fmt.Sprintf("mkdir %q && tar -C %q -c . | tar -C %q -x", to, from, to)
}
