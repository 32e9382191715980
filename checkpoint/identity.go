package checkpoint

import (
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/api"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

// known makes the view of a cluster that is not the store's Unknown: what
// another one says of this node tells nothing of the pods that were saved. The
// UID of kube-system is a cluster's for as long as it lives.
func (o *observer) known(view Observed[*api.View]) Observed[*api.View] {
	v, ok := view.Value()
	cluster := o.store.Node().KubeSystemUID
	if !ok || cluster == "" || cluster == v.KubeSystemUID {
		return view
	}
	return Unknown[*api.View]("api: another cluster answers: the UID of its namespace kube-system is %s, that of the saved one %s; check --kubeconfig, or start with an empty --state-dir",
		v.KubeSystemUID, cluster)
}

// identify notes whose pods the store holds, once.
func (l *Loop) identify(s *sight) {
	parents, ok := s.api.Value()
	if !ok || l.config.DryRun || l.store.Node().KubeSystemUID != "" {
		return
	}
	node := store.Node{
		Name: l.config.Node, NodeUID: parents.view.NodeUID, NodeIP: parents.view.NodeIP,
		KubeSystemUID: parents.view.KubeSystemUID,
	}
	if err := l.store.SetNode(node); err != nil {
		l.log.Error("note the cluster's identity", "err", err)
	}
}
