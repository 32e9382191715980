package sim

import (
	"encoding/json"
	"fmt"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/durable"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// contents are the files of the Secret that the server mounts, all of one revision.
func (c *cluster) contents() map[string][]byte {
	return map[string][]byte{"key": c.payload(), "again": c.payload()}
}

// read is the payload that a volume has, as a program reads it that has it mounted. Of
// several at once it has none.
func (n *node) read(volume string) (payload string, err error) {
	err = n.look(stateDir, func(d *durable.Dir) error {
		key, err := d.ReadFile(volume + "/key")
		if err != nil {
			return err
		}
		again, err := d.ReadFile(volume + "/again")
		if err == nil && string(again) != string(key) {
			err = fmt.Errorf("%s has %q and %q", volume, key, again)
		}
		payload = string(key)
		return err
	})
	return payload, err
}

// saved is the payload of the server's Secret that a generation has.
func (n *node) saved(g store.Generation) string {
	digest := g.Payloads[volumes[0]]
	if payload, known := n.rules.payloads[digest]; known {
		return payload
	}
	var body struct{ Files []struct{ Data []byte } }
	err := n.look(stateDir, func(d *durable.Dir) error {
		data, err := d.ReadFile("payloads/" + digest + "/payload.json")
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &body)
	})
	if err != nil || len(body.Files) == 0 {
		n.broken("generation %d has no payload: %v", g.Seq, err)
		return ""
	}
	n.rules.payloads[digest] = string(body.Files[0].Data)
	return n.rules.payloads[digest]
}

// revision counts the writes to the Secret.
func revision(payload string) (r int) {
	_, _ = fmt.Sscanf(payload, "key %d", &r)
	return r
}

// mayMount: each volume of a checkpoint has the files of one generation, and none
// older than the one that they are said to be of.
func (n *node) mayMount(p *pod) {
	if p == nil || p.workload != server {
		return
	}
	key := store.Key{Namespace: namespace, Workload: server}
	record, _ := n.daemon.store.Workload(key)
	files := n.daemon.store.Files(key, p.activation())
	for _, g := range record.Generations {
		if g.Seq != files {
			continue
		}
		for _, volume := range volumes {
			is, err := n.read("activations/" + p.activation() + "/" + volume)
			if err != nil || revision(is) < revision(n.saved(g)) {
				n.broken("the volume %s of a checkpoint has %q, and its files are of generation %d, %q: %v", volume, is, files, n.saved(g), err)
			}
		}
		return
	}
	n.broken("the files of a checkpoint are of generation %d, which is gone", files)
}

// fresh tells whether the server's checkpoint has all of the Secret as it is now, and
// the daemon says so.
func (n *node) fresh() bool {
	p := n.activations()[server]
	if p == nil || n.daemon.store == nil {
		return false
	}
	for _, volume := range volumes {
		if is, err := n.read("activations/" + p.activation() + "/" + volume); err != nil || is != string(n.cluster.payload()) {
			return false
		}
	}
	key := store.Key{Namespace: namespace, Workload: server}
	record, _ := n.daemon.store.Workload(key)
	return n.daemon.store.Files(key, p.activation()) == record.Generations[0].Seq
}
