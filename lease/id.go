package lease

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// IDs makes rising ids (UUID version 7, RFC 9562): each is greater than every one before it from the same
// IDs, also when the wall clock steps back. The zero value is ready. Safe for concurrent use.
type IDs struct {
	mu   sync.Mutex
	last uint64 // milliseconds << 12 | counter: the first 60 free bits of the last id
}

// New returns the next id.
func (g *IDs) New() fence.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := uint64(time.Now().UnixMilli()) << 12
	if next <= g.last {
		next = g.last + 1
	}
	g.last = next
	var id fence.ID
	binary.BigEndian.PutUint64(id[:8], next>>12<<16|0x7000|next&0xfff)
	rand.Read(id[8:]) // never returns an error, see crypto/rand
	id[8] = id[8]&0x3f | 0x80
	return id
}

// NewID returns one id: for a session, or where a single id is needed.
func NewID() fence.ID {
	var g IDs
	return g.New()
}
