#ifndef SLOTSERVER_TEMPLATES_H
#define SLOTSERVER_TEMPLATES_H

extern const char *const template_settings_new;
extern const char *const template_props_new;
extern const char *const template_models_new;
extern const char *const template_settings_old;
extern const char *const template_props_old;
extern const char *const template_models_old;
extern const char *const template_router_model;
extern const char *const template_router_props;

#endif
