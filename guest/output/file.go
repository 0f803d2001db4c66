package output

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"berth/proto"
)

// chunkHeader is what stands before each piece of output in a file.
type chunkHeader struct {
	Stream uint8
	Offset int64
	Length uint32
}

// Save writes what is kept: pieces in their order, each as stream, offset, length and bytes.
func (o *Output) Save(to io.Writer) error {
	w := bufio.NewWriter(to)
	for c := (Cursor{}); ; {
		o.mu.Lock()
		_, p, ok := o.take(&c, nil, ChunkBytes, false)
		o.mu.Unlock()
		if !ok {
			return w.Flush()
		}
		if p.Until > 0 {
			continue // the next piece's offset tells of the gap
		}
		if err := binary.Write(w, binary.LittleEndian, chunkHeader{uint8(p.Stream), p.Offset,
			uint32(len(p.Data))}); err != nil {
			return err
		}
		if _, err := w.Write(p.Data); err != nil {
			return err
		}
	}
}

var errDamaged = errors.New("the file is damaged")

// Load makes an output that has ended, of what Save wrote and of how many bytes the streams had. A nil reader
// is one that is all gone. What cannot be read shows as a gap, beside the error.
func Load(from io.Reader, stdout, stderr int64, budget *Budget) (*Output, error) {
	o := New(2*max(stdout, stderr), budget) // enough for each half to hold all of it
	var err error
	if from != nil {
		err = o.load(bufio.NewReader(from), [2]int64{stdout, stderr})
	}
	o.streams[0].skip(stdout)
	o.streams[1].skip(stderr)
	o.done = true
	return o, err
}

func (o *Output) load(r io.Reader, totals [2]int64) error {
	for {
		var h chunkHeader
		if err := binary.Read(r, binary.LittleEndian, &h); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if h.Stream < 1 || h.Stream > 2 || h.Length > ChunkBytes ||
			h.Offset < o.streams[h.Stream-1].total || h.Offset > totals[h.Stream-1]-int64(h.Length) {
			return errDamaged
		}
		data := make([]byte, h.Length)
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		o.WriteAt(proto.Stream(h.Stream), h.Offset, data)
	}
}
