package output

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"berth/proto"
)

// chunkHeader is the header of each chunk of output in a file.
type chunkHeader struct {
	Stream uint8
	Offset int64
	Length uint32
}

// Save writes the kept chunks in order, each as stream, offset, length and bytes.
func (o *Output) Save(to io.Writer) error {
	w := bufio.NewWriter(to)
	for c := (Cursor{}); ; {
		o.mu.Lock()
		if !c.begun {
			o.admit(&c)
		}
		_, p, ok := o.take(&c, nil, ChunkBytes, false)
		o.mu.Unlock()
		if !ok {
			return w.Flush()
		}
		if p.Until > 0 {
			continue // the next chunk's offset shows the gap
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

// Load makes an ended output from what Save wrote. stdout and stderr are the total bytes of the streams. A nil reader
// means that all output is gone. Output that cannot be read becomes a gap, and Load also returns the error.
func Load(from io.Reader, stdout, stderr int64, budget *Budget) (*Output, error) {
	o := New(2*max(stdout, stderr), budget) // large enough for each half to hold everything
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
