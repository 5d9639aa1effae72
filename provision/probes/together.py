"""Last of a probe over several frameworks: all in one process, imported in the order asked for.

Two frameworks that each work alone can fight over one cuDNN or one protobuf: who is imported first
loads the libraries, and the other has to live with them."""

for name in ASKED["order"]:
    tell("enter", framework=name)
    begin("framework", "importing %s" % name)
    try:
        __import__(name)
    except Exception as error:
        failed("framework", error)
for name in ASKED["order"]:
    tell("enter", framework=name)
    STAGES[name]()
finish()
