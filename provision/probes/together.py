"""Ends a probe over several frameworks: imports all in one process, in the requested order.

Two frameworks that each work alone can conflict over one cuDNN or one protobuf. The one imported first loads
the libraries, and the other must use them.
"""

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
