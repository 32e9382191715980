package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"

	"google.golang.org/protobuf/encoding/protowire"
)

// walName is the name of a file of etcd's write-ahead log: its number, and the index of
// its first entry (go.etcd.io/etcd/server/v3 v3.7.0, storage/wal/util.go). Files in the
// making have other names: one that has this name is on the disk with all that its
// beginning needs (wal.go, Create and cut).
var walName = regexp.MustCompile(`^[0-9a-f]{16}-[0-9a-f]{16}\.wal$`)

// walHead is as much of a file as is read: its first two records have some 60 bytes.
const walHead = 512

// Types of records (storage/wal/wal.go).
const (
	walMetadata = 1
	walCRC      = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parseWAL reads member and cluster out of the beginning of a file: a record with the
// checksum of all data before this file, then the metadata (storage/wal/wal.go,
// saveCrc; etcdserverpb.Metadata has node and cluster in its fields 1 and 2).
func parseWAL(head []byte) (member, cluster uint64, err error) {
	first, head, err := nextRecord(head)
	if err != nil {
		return 0, 0, err
	}
	second, _, err := nextRecord(head)
	switch {
	case err != nil:
		return 0, 0, err
	case first.kind != walCRC || second.kind != walMetadata:
		return 0, 0, fmt.Errorf("begins with records of types %d and %d, and not with checksum and metadata", first.kind, second.kind)
	case crc32.Update(first.crc, castagnoli, second.data) != second.crc:
		return 0, 0, errors.New("the checksum of its metadata is wrong")
	}
	ids, err := readFields(second.data)
	if err != nil {
		return 0, 0, err
	}
	if ids.ints[1] == 0 || ids.ints[2] == 0 {
		return 0, 0, errors.New("its metadata names no member")
	}
	return ids.ints[1], ids.ints[2], nil
}

// record is one of the log (storage/wal/walpb/record.proto).
type record struct {
	kind uint64
	crc  uint32 // of all data up to and with this record's
	data []byte
}

// nextRecord reads the first record and returns what follows it. In front of each
// stands its length in the lower 56 bits of a little-endian number; the highest bit
// says that the lowest three of the highest byte count bytes of padding
// (storage/wal/decoder.go, decodeFrameSize).
func nextRecord(head []byte) (record, []byte, error) {
	if len(head) < 8 {
		return record{}, nil, errTorn
	}
	frame := binary.LittleEndian.Uint64(head)
	head = head[8:]
	length, padding := frame&(1<<56-1), uint64(0)
	if frame>>63 == 1 {
		padding = frame >> 56 & 7
	}
	if length == 0 || length+padding > uint64(len(head)) {
		return record{}, nil, errTorn
	}
	f, err := readFields(head[:length])
	if err != nil {
		return record{}, nil, err
	}
	return record{kind: f.ints[1], crc: uint32(f.ints[2]), data: f.bytes[3]}, head[length+padding:], nil
}

var errTorn = errors.New("it ends before its metadata")

// message is one of protobuf: the last value of each of its fields.
type message struct {
	ints  map[protowire.Number]uint64
	bytes map[protowire.Number][]byte
}

func readFields(b []byte) (message, error) {
	m := message{ints: map[protowire.Number]uint64{}, bytes: map[protowire.Number][]byte{}}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return message{}, protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return message{}, protowire.ParseError(n)
		}
		switch kind {
		case protowire.VarintType:
			m.ints[number], _ = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			m.bytes[number], _ = protowire.ConsumeBytes(b)
		default: // none of ours
		}
		b = b[n:]
	}
	return m, nil
}
