// Package api is the API server's view of one node: the pods bound to it, the
// Secrets and ConfigMaps that they name, their owners, and who is answering.
//
// A View is whole or it is an error, and an error means unknown: it never reads
// as "no such pod". Nothing is kept from one View to the next but what its watches
// vouch for. Each reads the
// credentials and the files that they name, opens its own connection and closes
// it, so that a replaced certificate counts at once, and so that what an API
// server which was killed or which hangs has left behind can't hold up the next
// View. The TLS handshake that this costs is within the 2 ms of a whole View.
package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

// Config says whom to ask, as whom, and about what. The credentials are those of
// Kubeconfig where it is set, and no others; else of ServiceAccount once there is
// a token in it, else of Fallback. Which of them is chosen anew for each
// call, and none need exist yet.
type Config struct {
	Kubeconfig     string   // path
	ServiceAccount string   // directory with a pod's service account: token and ca.crt
	Endpoint       string   // URL of the API server for ServiceAccount
	Fallback       string   // path of a kubeconfig
	Node           string   // required: this node's name, as the API knows it
	Namespaces     []string // required: whose pods to list, each with a LIST of its own, so that a Role in each is enough
}

// View is what the API server said of one node at one time.
type View struct {
	Pods            []corev1.Pod // of the node, complete, in the namespaces of Config
	ResourceVersion string       // of the oldest list: no list of this View is older
	KubeSystemUID   string       // of the namespace kube-system: which cluster answers
	NodeUID         string
	NodeIP          string // the Node's first InternalIP; "" until its kubelet has reported one

	// Audiences are those of the token that asked: one of them is the API server's
	// own. nil where it does not say, or a client certificate asked.
	Audiences []string

	// Every object that a protected pod refers to is in exactly one of these.
	Secrets    map[Ref]*corev1.Secret
	ConfigMaps map[Ref]*corev1.ConfigMap
	Accounts   map[Ref]types.UID // the service account of that name is this one
	Missing    map[Ref]bool      // the API server says that there is none
	Failed     map[Ref]error     // unknown; names the object, and matches the same errors as View's

	Owners map[Owner]OwnerSpec // of each protected pod that OwnerOf knows one of

	whole time.Time      // when all of it, or the oldest View that it has objects of, was asked for
	taken time.Time      // when it was asked for
	since map[Ref]string // resourceVersion to watch an object of an older View from
}

// Wanted says of a pod whether it is protected, and which objects it then needs.
type Wanted func(*corev1.Pod) (refs []Ref, protected bool)

// Client asks for Views, and awaits that one is out of date. Between its calls it
// holds no connection and no file; it is safe for concurrent use.
type Client struct {
	config Config
	pace   pace
}

// New checks that nothing is left out of config; it touches no file and no network.
func New(config Config) (*Client, error) {
	switch {
	case len(config.sources()) == 0:
		return nil, errors.New("no kubeconfig and no service account named")
	case config.Node == "":
		return nil, errors.New("no node named")
	case len(config.Namespaces) == 0 || slices.Contains(config.Namespaces, ""):
		// Without one a View would be empty, which reads as "nothing is bound to this node".
		return nil, errors.New("no namespace named, or an empty name among them")
	}
	config.Namespaces = slices.Clone(config.Namespaces)
	slices.Sort(config.Namespaces)
	config.Namespaces = slices.Compact(config.Namespaces)
	return &Client{config, calm}, nil
}

// View asks the API server within the deadline of ctx, and retries nothing that
// fails. All in it is of one time, that of its list: where an object has changed
// since, it asks for everything anew, at most twice, and an object that changes
// even so is unknown. Objects that are still what they were it takes as they are. An
// error of an object or of an owner is in the View; any other makes the View unknown and
// matches one of the errors of this package, or context.Canceled.
func (c *Client) View(ctx context.Context, wanted Wanted, still *Still) (View, error) {
	ctx = klog.NewContext(ctx, klog.New(nil)) // or client-go writes warnings and read errors to stderr
	ctx, closeConnection := context.WithCancel(ctx)
	defer closeConnection()

	s, err := c.connect(ctx, newTransport)
	if err != nil {
		return View{}, err
	}
	var before map[Ref]string
	for range maxTakes - 1 {
		v, err := c.take(ctx, s, wanted, still)
		if err != nil {
			return View{}, err
		}
		if len(v.changed(before)) == 0 {
			return v, nil
		}
		before = v.Versions()
	}
	v, err := c.take(ctx, s, wanted, still)
	if err != nil {
		return View{}, err
	}
	v.doubt(before)
	return v, nil
}

// take asks for everything once.
func (c *Client) take(ctx context.Context, s *server, wanted Wanted, still *Still) (View, error) {
	v := View{taken: time.Now(), since: map[Ref]string{}}
	v.whole = v.taken
	if err := c.identity(ctx, s, &v); err != nil {
		return View{}, err
	}
	if err := c.list(ctx, s, &v); err != nil {
		return View{}, err
	}
	c.named(ctx, s, &v, wanted, still.within(&v))
	return v, nil
}

// identity asks each time, although neither answer changes for as long as the
// cluster lives: that it did change is what the caller has to hear of, and the
// two cost less than a millisecond each.
func (c *Client) identity(ctx context.Context, s *server, v *View) error {
	namespace, err := get[*corev1.Namespace](ctx, s, "namespaces", "", metav1.NamespaceSystem)
	if err != nil {
		return err
	}
	node, err := get[*corev1.Node](ctx, s, "nodes", "", c.config.Node)
	if errors.Is(err, errNotFound) {
		return fmt.Errorf("%w: there is no node %q: it has not registered yet, or --node-name is wrong", ErrNodeUnknown, c.config.Node)
	}
	if err != nil {
		return err
	}
	v.Audiences = ClaimsOf(s.config.BearerToken).Audiences
	v.KubeSystemUID, v.NodeUID = string(namespace.UID), string(node.UID)
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			v.NodeIP = a.Address
			break
		}
	}
	return nil
}

func (c *Client) list(ctx context.Context, s *server, v *View) error {
	for _, namespace := range c.config.Namespaces {
		pods, version, err := listPods(ctx, s, namespace, c.config.Node)
		if err != nil {
			return err
		}
		v.Pods = append(v.Pods, pods...)
		if v.ResourceVersion == "" {
			v.ResourceVersion = version
		}
		older, err := resourceversion.CompareResourceVersion(version, v.ResourceVersion)
		if err != nil {
			return fmt.Errorf("list pods in namespace %s: %w: resourceVersion %q", namespace, ErrAnswer, version)
		}
		if older < 0 {
			v.ResourceVersion = version
		}
	}
	return nil
}
